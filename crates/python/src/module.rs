//! Modules, kernels and launches.
#![expect(unsafe_code, reason = "launches a kernel, for which the caller vouches")]

use std::collections::BTreeMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use runtime::contract::{ParamAccess, ParamInfo, ParamKind};
use runtime::{Arg, DType, ImageFormat, Launch, ModuleBundle, ModuleImage};

use crate::array::{self, Asked, BlockMemory, Chosen, DeviceArray, Part, Turn, Use};
use crate::device::Device;
use crate::dtype::{self, Value};
use crate::error::{Failure, Result};
use crate::fork;
use crate::stream::Stream;

/// The code formats that Python can supply, with their names here. Rust functions are not among them.
const FORMATS: [(&str, ImageFormat); 8] = [
    ("cuda_c", ImageFormat::CudaC),
    ("ptx", ImageFormat::Ptx),
    ("cubin", ImageFormat::Cubin),
    ("hip_c", ImageFormat::HipC),
    ("code_object", ImageFormat::CodeObject),
    ("opencl_c", ImageFormat::OpenClC),
    ("spirv", ImageFormat::SpirV),
    ("elf", ImageFormat::Elf),
];

/// The name of a format; `None` for a format that Python cannot supply.
pub(crate) fn format_name(format: ImageFormat) -> Option<&'static str> {
    FORMATS.iter().find(|known| known.1 == format).map(|known| known.0)
}

/// The code of a module.
#[derive(FromPyObject)]
pub(crate) enum Code {
    /// Source code or another text.
    Text(String),
    /// A binary.
    Bytes(Vec<u8>),
}

impl Code {
    fn image(&self, format: &str, options: &[String]) -> Result<ModuleImage<'_>> {
        let known = FORMATS.iter().find(|known| known.0 == format);
        let Some((_, format)) = known.copied() else {
            let names = FORMATS.map(|known| known.0).join(", ");
            return Err(Failure::invalid(
                "module_load",
                format!("format {format:?}; there are {names}"),
            ));
        };
        let image = match self {
            Self::Text(text) => ModuleImage::source(format, text),
            Self::Bytes(bytes) => ModuleImage::binary(format, &bytes[..]),
        };
        Ok(match format.takes_options() {
            true => image.with_options(options.iter().cloned()),
            false => image,
        })
    }
}

/// Code loaded on a device, made by ``Device.module``.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct Module(runtime::Module);

impl Module {
    pub(crate) fn load(
        py: Python<'_>,
        device: &runtime::Device,
        code: &Code,
        format: Option<&str>,
        options: Vec<String>,
    ) -> Result<Self> {
        let formats = &device.info().formats;
        let is_text = |format: &ImageFormat| {
            matches!(
                format,
                ImageFormat::CudaC | ImageFormat::HipC | ImageFormat::OpenClC | ImageFormat::Ptx
            )
        };
        let fits = |format: &&ImageFormat| {
            format_name(**format).is_some() && is_text(format) == matches!(code, Code::Text(_))
        };
        let format = match format {
            Some(format) => format,
            None => formats.iter().find(fits).and_then(|format| format_name(*format)).ok_or_else(
                || {
                    let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
                    let what = if matches!(code, Code::Text(_)) { "source" } else { "bytes" };
                    let message = format!("{what}; {} takes {}", device.id(), names.join(", "));
                    Failure::invalid("module_load", message)
                },
            )?,
        };
        let image = code.image(format, &[])?.with_options(options);
        fork::check("module_load")?;
        Ok(Self(py.detach(|| device.module_load(image))?))
    }

    pub(crate) fn load_bundle(
        py: Python<'_>,
        device: &runtime::Device,
        images: &BTreeMap<String, Code>,
        options: &[String],
    ) -> Result<Self> {
        let mut bundle = ModuleBundle::new();
        for (format, code) in images {
            bundle = bundle.with(code.image(format, options)?);
        }
        fork::check("module_load")?;
        Ok(Self(py.detach(|| device.module_load_bundle(&bundle))?))
    }
}

#[pymethods]
impl Module {
    /// The device that the module is loaded on.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device().clone())
    }

    /// Returns the kernel with this name.
    fn kernel(&self, name: &str) -> Result<Kernel> {
        Ok(Kernel(self.0.kernel(name)?))
    }

    fn __getitem__(&self, name: &str) -> Result<Kernel> {
        self.kernel(name)
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

/// The number of blocks or work-items along x, y and z: an int, or up to three ints.
pub(crate) struct Extent([u32; 3]);

impl<'py> FromPyObject<'_, 'py> for Extent {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let extents = array::integers(&given)?;
        if extents.len() > 3 {
            let message = format!("{} extents; there are x, y and z", extents.len());
            return Err(Failure::invalid("launch", message).into());
        }
        let mut all = [1; 3];
        for (extent, given) in all.iter_mut().zip(&extents) {
            *extent = u32::try_from(*given).map_err(|_| {
                let message = format!("{given} blocks or work-items in {extents:?}");
                Failure::invalid("launch", message)
            })?;
        }
        Ok(Self(all))
    }
}

/// A kernel of a loaded module, made by ``Module.kernel`` or ``module[name]``.
///
/// ``kernel(stream, grid, block, arguments=(), *, shared_bytes=0, cooperative=False, relaxed=False)`` enqueues it.
///
/// Enqueues the kernel with ``grid`` blocks of ``block`` work-items. Each is an int, or up to three ints for x, y
/// and z.
///
/// Arguments are arrays, numbers and bytes. For an array, the kernel gets the address of the first element. A
/// number is a NumPy number, which has a type, or a Python number if the loaded kernel reports the type of the
/// parameter. Bytes are for structures. Arguments are checked against the parameters that the loaded kernel
/// reports. Nothing else is checked: a kernel that accesses memory outside its arguments corrupts memory, as in any
/// language.
///
/// The stream waits for unfinished work of other streams that writes the arrays. If the kernel may write an array,
/// the stream also waits for work that reads it. The kernel may write unless the array is read-only or the loaded
/// kernel reports that the parameter is constant. ``relaxed=True`` leaves out these waits. An address that is
/// passed as a number is not tracked.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct Kernel(runtime::Kernel);

#[pymethods]
impl Kernel {
    /// The name in the module.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The device that the kernel is loaded on.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device().clone())
    }

    /// The parameters of the loaded kernel, or None if the driver does not report them. For each parameter: whether it
    /// is memory or a value, its element type, its size in bytes, and whether it is written, as far as these are known.
    #[getter]
    fn parameters(&self) -> Option<Vec<Described>> {
        self.0.parameters().map(|parameters| parameters.iter().map(describe).collect())
    }

    /// The number of work-items per block that suits the kernel best.
    #[pyo3(signature = (shared_bytes = 0))]
    fn suggested_block(&self, shared_bytes: u32) -> Result<u32> {
        Ok(self.0.suggested_block(shared_bytes)?)
    }

    /// The number of blocks of ``block`` work-items that one multiprocessor holds at once, or None if the driver does
    /// not report it.
    #[pyo3(signature = (block, shared_bytes = 0))]
    fn resident_blocks(&self, block: u32, shared_bytes: u32) -> Result<Option<u32>> {
        Ok(self.0.resident_blocks(block, shared_bytes)?)
    }

    /// Enqueues the kernel: see the class.
    #[pyo3(signature = (stream, grid, block, arguments = Vec::new(), *, shared_bytes = 0, cooperative = false,
        relaxed = false))]
    #[expect(clippy::too_many_arguments, reason = "what a launch has")]
    fn __call__(
        &self,
        py: Python<'_>,
        stream: &Stream,
        grid: Extent,
        block: Extent,
        arguments: Vec<Bound<'_, PyAny>>,
        shared_bytes: u32,
        cooperative: bool,
        relaxed: bool,
    ) -> Result<()> {
        let launch = Launch { grid: grid.0, block: block.0, shared_bytes, cooperative };
        if let Some(parameters) = self.0.parameters()
            && parameters.len() != arguments.len()
        {
            // Checked before the arguments are converted, because an argument without a parameter may have no known
            // type.
            let (given, taken, name) = (arguments.len(), parameters.len(), self.0.name());
            let message = format!("kernel {name:?}: {given} arguments for {taken} parameters");
            return Err(Failure::invalid("launch", message));
        }
        let parameters = self.0.parameters().unwrap_or_default();
        let given = arguments.iter().enumerate().map(|(index, given)| {
            Given::new(given, parameters.get(index))
                .map_err(|failure| failure.in_argument(py, self.0.name(), index))
        });
        let given = given.collect::<Result<Vec<_>>>()?;
        py.detach(|| {
            let on = Chosen::new(Asked::on(stream, relaxed), stream.0.device(), &[]);
            let known = || parameters.iter().map(Some).chain(std::iter::repeat(None));
            let uses = given.iter().zip(known());
            let _turn =
                Turn::take(uses.filter_map(|(given, parameter)| given.uses(&on, parameter)))?;
            let held = given.iter().map(Given::hold).collect::<Result<Vec<_>>>()?;
            let arguments = given.iter().zip(&held).zip(known());
            let arguments = arguments
                .map(|((given, held), parameter)| given.argument(held.as_ref(), parameter));
            let arguments = arguments.collect::<Result<Vec<_>>>()?;
            // SAFETY: the caller's duty, as the documentation says; Python cannot mark such calls as unsafe.
            unsafe { self.0.launch(&stream.0, &launch, &arguments) }?;
            Ok(())
        })
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

type Described = (&'static str, Option<&'static str>, Option<usize>, Option<bool>);

fn describe(parameter: &ParamInfo) -> Described {
    let kind = match parameter.kind {
        ParamKind::Memory => "memory",
        ParamKind::Value => "value",
        ParamKind::Unknown => "unknown",
    };
    let writes = parameter.access.map(|access| access == ParamAccess::Write);
    (kind, parameter.dtype.map(dtype::name), parameter.size, writes)
}

/// An argument converted from Python.
enum Given {
    Memory(Part),
    Value(Value),
    Bytes(Vec<u8>),
}

impl Given {
    fn new(given: &Bound<'_, PyAny>, parameter: Option<&ParamInfo>) -> Result<Self> {
        if let Ok(array) = given.cast::<DeviceArray>() {
            return Ok(Self::Memory(array.get().part.clone()));
        }
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.as_bytes().to_vec()));
        }
        // NumPy numbers have a type.
        if given.hasattr("dtype")? && given.hasattr("item")? {
            let of = dtype::from_python(&given.getattr("dtype")?)?;
            return Value::new(given, of).map(Self::Value);
        }
        let of = parameter.and_then(|parameter| number_type(given, parameter));
        let Some(of) = of else {
            let message = match parameter.map(|parameter| parameter.kind) {
                Some(ParamKind::Memory) => format!("{given:?} for a memory parameter"),
                _ => format!(
                    "{given:?}, whose type the kernel does not declare: pass a NumPy number, such as numpy.float32(…)"
                ),
            };
            return Err(Failure::Python(PyTypeError::new_err(message)));
        };
        Value::new(given, of).map(Self::Value)
    }

    /// Holds the argument's memory, if it is memory.
    fn hold(&self) -> Result<Option<BlockMemory<'_>>> {
        match self {
            Self::Memory(part) => part.hold().map(Some),
            Self::Value(_) | Self::Bytes(_) => Ok(None),
        }
    }

    /// The use of the argument, if it is memory. A kernel that does not declare its accesses may read what an exchange
    /// holds: what it writes there is its caller's duty.
    fn uses<'a>(&'a self, on: &'a Chosen, parameter: Option<&ParamInfo>) -> Option<Use<'a>> {
        let Self::Memory(part) = self else { return None };
        Some(match parameter.and_then(|info| info.access) {
            Some(ParamAccess::Read) => on.reads(part),
            Some(ParamAccess::Write) => on.writes(part),
            None => on.may_write(part),
        })
    }

    fn argument<'a>(
        &'a self,
        held: Option<&'a BlockMemory<'_>>,
        parameter: Option<&ParamInfo>,
    ) -> Result<Arg<'a>> {
        Ok(match (self, held) {
            (Self::Bytes(bytes), _) => Arg::bytes(&bytes[..]),
            (Self::Value(value), _) => {
                dtype::with_element!(value.dtype, T => value.element::<T>()?.into())
            }
            (Self::Memory(part), Some(held)) => {
                let reads = parameter.is_some_and(|info| info.access == Some(ParamAccess::Read));
                match reads || part.read_only {
                    true => part.view(held)?.into(),
                    false => part.view_mut(held)?.into(),
                }
            }
            (Self::Memory(_), None) => {
                return Err(Failure::invalid("launch", "memory that is not held"));
            }
        })
    }
}

/// The element type of a Python number for a parameter, as far as the kernel reports it.
fn number_type(given: &Bound<'_, PyAny>, parameter: &ParamInfo) -> Option<DType> {
    let is_integer = given.is_instance_of::<pyo3::types::PyInt>();
    if parameter.kind == ParamKind::Memory {
        return None;
    }
    parameter.dtype.or(match (parameter.size?, is_integer) {
        // One byte, signed or not.
        (1, true) if given.lt(0).ok()? => Some(DType::I8),
        (1, true) => Some(DType::U8),
        (4, true) => Some(DType::I32),
        (8, true) => Some(DType::I64),
        (4, false) => Some(DType::F32),
        (8, false) => Some(DType::F64),
        _ => None,
    })
}

impl Failure {
    /// Adds the kernel and the argument's index to the error.
    fn in_argument(self, py: Python<'_>, kernel: &str, index: usize) -> Self {
        let Self::Python(error) = self else { return self };
        let message = format!("kernel {kernel:?}: argument {index}: {}", error.value(py));
        Self::Python(PyErr::from_type(error.get_type(py), message))
    }
}
