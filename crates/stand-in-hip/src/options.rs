//! Options of hiprtc's compiler and the corresponding options of NVRTC.

/// Returns the architecture that the options name, and the other options as NVRTC spells them. Options without a
/// meaning for NVRTC are dropped. Unknown options are kept, so that the compiler refuses them.
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
            // NVRTC has no GNU extensions.
            _ => words.push(option.replace("=gnu++", "=c++")),
        }
    }
    (architecture, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_translated_dropped_or_kept() {
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
