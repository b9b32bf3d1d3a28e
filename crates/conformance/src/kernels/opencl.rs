//! The kernels as OpenCL C.

use runtime_core::{ImageFormat, ModuleBundle, ModuleImage};

const SOURCE: &str = include_str!("kernels.cl");

/// The kernels as source text, for devices that support [`OpenClC`](runtime_core::ImageFormat::OpenClC) of version 1.2
/// or later.
///
/// It has all kernels of the table except `fault`: if the device is the CPU, the OpenCL runtime is part of the test
/// process, and a trap would end that process. On devices without double precision, `scale_f64` and `many_arguments`
/// are missing.
pub fn opencl_c() -> ModuleBundle<'static> {
    ModuleBundle::new().with(ModuleImage::source(ImageFormat::OpenClC, SOURCE))
}

#[cfg(test)]
mod tests {
    use runtime_core::DType;
    use runtime_core::contract::{ParamAccess, ParamInfo, ParamKind};

    use super::*;
    use crate::kernels::{REQUIRED, host_module};

    /// A parameter such as `global const uint *a`, as the driver of a loaded kernel reports it.
    fn parameter(text: &str) -> ParamInfo {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (kind, access) = match words.as_slice() {
            ["global", "const", ..] => (ParamKind::Memory, Some(ParamAccess::Read)),
            ["global", ..] => (ParamKind::Memory, Some(ParamAccess::Write)),
            _ => (ParamKind::Value, None),
        };
        let dtype = match words[words.len() - 2] {
            "char" => DType::I8,
            "uchar" => DType::U8,
            "short" => DType::I16,
            "ushort" => DType::U16,
            "int" => DType::I32,
            "uint" => DType::U32,
            "long" => DType::I64,
            "ulong" => DType::U64,
            "float" => DType::F32,
            "double" => DType::F64,
            other => panic!("{other:?} in {text:?}"),
        };
        assert_eq!(kind == ParamKind::Memory, text.contains('*'), "{text}");
        let size = (kind == ParamKind::Value).then(|| dtype.size());
        ParamInfo::new(kind).with_size(size).with_dtype(dtype).with_access(access)
    }

    #[test]
    fn the_source_has_every_kernel_with_the_parameters_of_the_table() {
        let module = host_module();
        assert_eq!(SOURCE.matches("kernel void ").count(), REQUIRED.len());
        for name in REQUIRED {
            let (_, rest) = SOURCE.split_once(&format!("kernel void {name}(")).unwrap();
            let (parameters, _) = rest.split_once(')').unwrap();
            let found: Vec<ParamInfo> = parameters.split(',').map(parameter).collect();
            assert_eq!(found, module.kernel(name).unwrap().parameters(), "{name}");
        }
    }
}
