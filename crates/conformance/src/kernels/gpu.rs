//! The kernels as one source text that is both CUDA C and HIP C, and as PTX compiled from it.

use runtime_core::{ImageFormat, ModuleBundle, ModuleImage};

const SOURCE: &str = include_str!("kernels.cu");
const PTX: &str = include_str!("kernels.ptx");

/// The kernels as source text and as PTX 8.0 for architecture 6.0, for devices that support
/// [`CudaC`](runtime_core::ImageFormat::CudaC) or [`Ptx`](runtime_core::ImageFormat::Ptx).
///
/// It has all kernels of the table. `fault` is a trap, which ends the context but not the process.
pub fn cuda_c() -> ModuleBundle<'static> {
    ModuleBundle::new()
        .with(ModuleImage::source(ImageFormat::CudaC, SOURCE))
        .with(ModuleImage::source(ImageFormat::Ptx, PTX))
}

/// The kernels as source text, for devices that support [`HipC`](runtime_core::ImageFormat::HipC).
///
/// It has all kernels of the table. `fault` is a trap, or a write to an invalid address if the compiler is neither
/// AMD's nor NVIDIA's. Runtimes respond by stopping the program or the process.
pub fn hip_c() -> ModuleBundle<'static> {
    ModuleBundle::new().with(ModuleImage::source(ImageFormat::HipC, SOURCE))
}

#[cfg(test)]
mod tests {
    use runtime_core::DType;
    use runtime_core::contract::{ParamAccess, ParamInfo, ParamKind};

    use super::*;
    use crate::kernels::{REQUIRED, host_module};

    fn names() -> impl Iterator<Item = &'static str> {
        REQUIRED.iter().copied().chain(["fault", "meet"])
    }

    fn of_the_table(kernel: &str) -> Vec<ParamInfo> {
        if kernel == "meet" {
            let parameters = ["u32 *arrived", "u32 *posted", "u32 *seen", "u32 n"];
            return parameters.map(parameter).to_vec();
        }
        host_module().kernel(kernel).unwrap().parameters().to_vec()
    }

    /// Parses a parameter such as `const u32 *a` to the form that Rust functions declare.
    fn parameter(text: &str) -> ParamInfo {
        let (text, is_const) = match text.trim().strip_prefix("const ") {
            Some(rest) => (rest, true),
            None => (text.trim(), false),
        };
        let (words, name) = text.rsplit_once(' ').unwrap();
        let dtype = match words {
            "i8" => DType::I8,
            "u8" => DType::U8,
            "short" => DType::I16,
            "u16" => DType::U16,
            "int" => DType::I32,
            "u32" => DType::U32,
            "long long" => DType::I64,
            "u64" => DType::U64,
            "float" => DType::F32,
            "double" => DType::F64,
            other => panic!("{other:?} in {text:?}"),
        };
        let (kind, access) = match (name.starts_with('*'), is_const) {
            (true, true) => (ParamKind::Memory, Some(ParamAccess::Read)),
            (true, false) => (ParamKind::Memory, Some(ParamAccess::Write)),
            (false, _) => (ParamKind::Value, None),
        };
        let size = (kind == ParamKind::Value).then(|| dtype.size());
        ParamInfo::new(kind).with_size(size).with_dtype(dtype).with_access(access)
    }

    /// The parameters between `before`, which occurs once, and the next `)`.
    fn parameters_behind<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
        assert_eq!(text.matches(before).count(), 1, "{before}");
        let (_, rest) = text.split_once(before).unwrap();
        rest.split_once(')').unwrap().0.split(',').collect()
    }

    #[test]
    fn the_source_has_every_kernel_with_the_parameters_of_the_table() {
        assert_eq!(SOURCE.matches("\nKERNEL ").count(), names().count());
        for name in names() {
            let parameters = parameters_behind(SOURCE, &format!("\nKERNEL {name}("));
            let found: Vec<ParamInfo> = parameters.into_iter().map(parameter).collect();
            assert_eq!(found, of_the_table(name), "{name}");
        }
    }

    #[test]
    fn the_shipped_ptx_has_every_kernel_with_parameters_of_the_right_sizes() {
        assert!(PTX.contains("\n.version 8.0\n.target sm_60\n.address_size 64\n"));
        assert_eq!(PTX.matches(".visible .entry ").count(), names().count());
        for name in names() {
            let parameters = parameters_behind(PTX, &format!(".visible .entry {name}("));
            let size = |text: &str| {
                let bits =
                    text.split_whitespace().nth(1).unwrap().trim_start_matches(['.', 'u', 'f']);
                bits.parse::<usize>().unwrap() / 8
            };
            let found: Vec<usize> = parameters.into_iter().map(size).collect();
            let expected: Vec<usize> =
                of_the_table(name).iter().map(|parameter| parameter.size.unwrap_or(8)).collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}
