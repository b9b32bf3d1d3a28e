//! The kernels that the backend itself needs, as PTX that any driver translates. They need no installed compiler.
#![expect(unsafe_code, reason = "loads modules through the driver")]

use std::ffi::CStr;
use std::ptr;

use backend_gpu::handle::Function;
use backend_gpu::{Api, BuiltinKernels, Context, written};
use backend_support::{Binding, RegionKernel};

use crate::cuda::Cuda;

/// A kernel of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shipped {
    /// Region copies of up to [`RegionKernel::FEW`] memories.
    RegionsFew,
    /// Region copies of up to [`RegionKernel::MANY`] memories.
    RegionsMany,
    /// Region copies of up to [`RegionKernel::MAX_LISTED`] memories.
    RegionsMost,
    /// Region copies of any number of memories.
    RegionsAny,
    /// The kernel that sets the addresses of `RegionsAny`.
    RegionTable,
    /// Fills memory with patterns of four words.
    Fill,
}

const ALL: [Shipped; 6] = [
    Shipped::RegionsFew,
    Shipped::RegionsMany,
    Shipped::RegionsMost,
    Shipped::RegionsAny,
    Shipped::RegionTable,
    Shipped::Fill,
];

impl Shipped {
    /// The kernel for region copies that gets its memories with this binding.
    pub(crate) fn regions(binding: Binding) -> Self {
        match binding {
            Binding::Parameters(_) => Self::RegionsFew,
            Binding::List(..=RegionKernel::MANY) => Self::RegionsMany,
            Binding::List(_) => Self::RegionsMost,
            Binding::Table => Self::RegionsAny,
        }
    }

    fn ptx(self) -> &'static str {
        match self {
            Self::RegionsFew => concat!(include_str!("ptx/region_copy_8.ptx"), "\0"),
            Self::RegionsMany => concat!(include_str!("ptx/region_copy_32.ptx"), "\0"),
            Self::RegionsMost => concat!(include_str!("ptx/region_copy_448.ptx"), "\0"),
            Self::RegionsAny => concat!(include_str!("ptx/region_copy_any.ptx"), "\0"),
            Self::RegionTable => concat!(include_str!("ptx/region_table.ptx"), "\0"),
            Self::Fill => concat!(include_str!("ptx/fill.ptx"), "\0"),
        }
    }

    fn name(self) -> &'static CStr {
        match self {
            Self::RegionsFew | Self::RegionsMany | Self::RegionsMost | Self::RegionsAny => {
                c"region_copy"
            }
            Self::RegionTable => c"region_table",
            Self::Fill => c"fill",
        }
    }
}

/// The kernels on one device. Each is loaded when it is first needed.
pub(crate) type ShippedKernels = BuiltinKernels<Cuda, { ALL.len() }>;

/// Returns a kernel on the device of `kernels`, and loads it if needed.
pub(crate) fn function(kernels: &ShippedKernels, kernel: Shipped) -> Result<Function, u32> {
    let load = |context: &Context<Cuda>| {
        let (image, none) = (kernel.ptx().as_ptr().cast(), ptr::null_mut());
        let module = context.outside_captures(|api| {
            let load = api.functions.cuModuleLoadDataEx;
            // SAFETY: the text ends with a NUL; there are no options.
            written(|module| unsafe { load(module, image, 0, none, ptr::null_mut()) })
        })?;
        // SAFETY: the module was just loaded.
        let function = context
            .outside_captures(|api| unsafe { api.module_function(module, kernel.name()) })?;
        Ok((module, function))
    };
    // SAFETY: the module is not used otherwise, and its function is launched only on streams of the device.
    unsafe { kernels.function(kernel as usize, load) }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::io::{Write, stderr};
    use std::path::Path;

    use backend_support::{Dialect, Mapping};

    use super::*;
    use crate::library::Version;
    use crate::nvrtc::compiler;

    /// The variable that makes the test rewrite the files instead of comparing them.
    const WRITE: &str = "BACKEND_CUDA_WRITE_PTX";

    fn source(kernel: Shipped) -> String {
        let regions = |kernel: usize| {
            let binding = RegionKernel::BY_ADDRESS[kernel];
            assert_eq!(Shipped::regions(binding), ALL[kernel]);
            RegionKernel::new(Mapping::Lanes, binding, true).unwrap().source(Dialect::CudaC)
        };
        match kernel {
            Shipped::RegionTable => RegionKernel::setter_source(),
            Shipped::Fill => include_str!("fill.cu").to_owned(),
            regions_of => regions(regions_of as usize),
        }
    }

    /// The shipped files are the output of the compiler for the sources, with the oldest version that supported drivers
    /// accept.
    #[test]
    fn shipped_ptx_is_that_of_its_source() {
        const FIRST: Version = Version(12_000);
        let compiler = match compiler(FIRST) {
            Ok(compiler) if compiler.version == FIRST => compiler,
            Ok(compiler) => {
                let version = compiler.version;
                drop(writeln!(stderr(), "skipped: NVRTC {version}, and not {FIRST}"));
                return;
            }
            Err(why) => {
                drop(writeln!(stderr(), "skipped: {why}"));
                return;
            }
        };
        let files = [
            "region_copy_8.ptx",
            "region_copy_32.ptx",
            "region_copy_448.ptx",
            "region_copy_any.ptx",
            "region_table.ptx",
            "fill.ptx",
        ];
        for (kernel, file) in ALL.into_iter().zip(files) {
            let source = CString::new(source(kernel)).unwrap();
            let options = [c"--gpu-architecture=compute_60".to_owned()];
            let made = compiler.compile(&source, &options, false).unwrap().ptx;
            if std::env::var_os(WRITE).is_some() {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ptx");
                fs::write(folder.join(file), &made).unwrap();
            } else {
                let shipped = kernel.ptx().trim_end_matches('\0');
                assert!(made == shipped, "{file} differs; {WRITE}=1 writes it anew");
            }
        }
    }
}
