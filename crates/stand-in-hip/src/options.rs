//! Options of hiprtc's compiler and the corresponding options of NVRTC.

/// The architecture that options name, if they name one, and NVRTC's words for the others. What the engine has no use for is
/// left out, and what is not known stays as it is, for the compiler to refuse.
pub(crate) fn translate<'a>(
    options: impl IntoIterator<Item = &'a str>,
) -> (Option<&'a str>, Vec<String>) {
    /// Optimisation, warnings, code generation, debugging.
    const UNUSED: [&str; 8] = ["-O", "-W", "-f", "-m", "-g", "-nogpu", "--hip-", "-v"];
    const ARCHITECTURE: [&str; 3] = ["--offload-arch=", "--gpu-architecture=", "-mcpu="];
    let (mut architecture, mut words) = (None, Vec::new());
    for option in options {
        let named = ARCHITECTURE.iter().find_map(|prefix| option.strip_prefix(prefix));
        if named.is_some() {
            architecture = named;
            continue;
        }
        match option {
            "-ffast-math" | "-Ofast" => words.push("--use_fast_math".to_owned()),
            "-ffp-contract=off" => words.push("--fmad=false".to_owned()),
            "-w" => words.push("--disable-warnings".to_owned()),
            _ if UNUSED.iter().any(|prefix| option.starts_with(prefix)) => {}
            // GNU's extensions are not to be had.
            _ => words.push(option.replace("=gnu++", "=c++")),
        }
    }
    (architecture, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_translated_left_out_or_left_alone() {
        let given = ["-O3", "-DN=4", "--offload-arch=gfx90a:xnack-", "-std=gnu++17", "--what"];
        let (architecture, words) = translate(given);
        assert_eq!(architecture, Some("gfx90a:xnack-"));
        assert_eq!(words, ["-DN=4", "-std=c++17", "--what"]);
        assert_eq!(
            translate(["-ffast-math", "-ffp-contract=off"]).1,
            ["--use_fast_math", "--fmad=false"]
        );
    }
}
