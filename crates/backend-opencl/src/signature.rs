//! The driver's description of kernel parameters.
#![expect(unsafe_code, reason = "creates kernels to query their parameters")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::sync::Arc;

use opencl3::error_codes::CL_INVALID_KERNEL_NAME;
use opencl3::kernel::{
    CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_ACCESS_READ_ONLY,
    CL_KERNEL_ARG_ACCESS_READ_WRITE, CL_KERNEL_ARG_ACCESS_WRITE_ONLY,
    CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ADDRESS_LOCAL,
    CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_CONST, CL_KERNEL_ARG_TYPE_NAME,
    CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_NUM_ARGS, create_kernel, get_kernel_arg_data,
    get_kernel_data,
};
use opencl3::program::{CL_PROGRAM_KERNEL_NAMES, get_program_data};
use opencl3::types::{cl_int, cl_kernel, cl_program, cl_uint};
use runtime_core::DType;
use runtime_core::contract::{ParamAccess, ParamInfo, ParamKind};

use crate::handle::{Handle, Kernel};
use crate::platform::{integer, text};

/// The parameters of every kernel of a program. Drivers describe them only for programs built from source, so they are
/// stored with the binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signatures(BTreeMap<String, Signature>);

/// The parameters of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signature(Vec<Parameter>);

/// A parameter as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    space: Space,
    constant: bool,
    /// The size of a value whose type name does not give it, if it was determined.
    size: Option<usize>,
    /// For example `float*`.
    name: String,
}

/// The address space that a parameter points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Global,
    Constant,
    Local,
    /// The parameter is a value.
    Private,
    /// The parameter is neither memory nor a value, such as an image or a sampler.
    Opaque,
    /// The driver does not report it.
    Unknown,
}

/// The letters of the address spaces in text form.
const SPACES: [(Space, &str); 6] = [
    (Space::Global, "g"),
    (Space::Constant, "c"),
    (Space::Local, "l"),
    (Space::Private, "p"),
    (Space::Opaque, "o"),
    (Space::Unknown, "u"),
];

/// The access qualifiers of images and pipes. Other parameters have none.
const ACCESSES: [cl_uint; 3] = [
    CL_KERNEL_ARG_ACCESS_READ_ONLY,
    CL_KERNEL_ARG_ACCESS_WRITE_ONLY,
    CL_KERNEL_ARG_ACCESS_READ_WRITE,
];

/// The types of OpenCL that are neither memory nor values, without images and pipes.
const OPAQUE: [&str; 5] = ["sampler_t", "queue_t", "event_t", "clk_event_t", "reserve_id_t"];

impl Signatures {
    /// Returns the signatures of a built program, if the driver reports them.
    pub(crate) fn of(program: cl_program) -> Option<Self> {
        let names = get_program_data(program, CL_PROGRAM_KERNEL_NAMES).map(text).ok()?;
        let names = names.split(';').map(str::trim).filter(|name| !name.is_empty());
        let signature = |name: &str| {
            let raw = create(program, name).ok()?;
            // SAFETY: the kernel was just created.
            let kernel: Handle<Kernel> = unsafe { Handle::own(raw, &Arc::default()) };
            Some((name.to_owned(), Signature::of(kernel.raw()).ok()?))
        };
        names.map(signature).collect::<Option<_>>().map(Self)
    }

    pub(crate) fn get(&self, kernel: &str) -> Option<&Signature> {
        self.0.get(kernel)
    }

    /// The types of values whose size is unknown. Some of them may turn out not to be types of values.
    pub(crate) fn unsized_types(&self) -> Vec<String> {
        let parameters = self.0.values().flat_map(|signature| &signature.0);
        let is_unsized = |parameter: &&Parameter| {
            let known = value(&parameter.name).size.or(parameter.size);
            parameter.space == Space::Private && known.is_none()
        };
        let names: BTreeSet<_> =
            parameters.filter(is_unsized).map(|parameter| parameter.name.clone()).collect();
        names.into_iter().collect()
    }

    /// Sets the size of the values of a type.
    pub(crate) fn set_size(&mut self, name: &str, size: usize) {
        for parameter in self.values(name) {
            parameter.size = Some(size).filter(|size| *size > 0);
        }
    }

    /// Records that a type is not a type of values.
    pub(crate) fn set_opaque(&mut self, name: &str) {
        for parameter in self.values(name) {
            parameter.space = Space::Opaque;
        }
    }

    /// The values of a type.
    fn values(&mut self, name: &str) -> impl Iterator<Item = &mut Parameter> {
        let parameters = self.0.values_mut().flat_map(|signature| &mut signature.0);
        parameters.filter(move |found| found.space == Space::Private && found.name == name)
    }

    /// Converts to text, one line for each kernel: its name, and for each parameter the address space, `const` or not,
    /// the size and the type.
    pub(crate) fn to_text(&self) -> String {
        let parameter = |Parameter { space, constant, size, name }: &Parameter| {
            let letter = SPACES.iter().find(|(known, _)| known == space).map_or("u", |s| s.1);
            let access = if *constant { 'r' } else { 'w' };
            format!("\t{letter}{access}{}:{name}", size.unwrap_or(0))
        };
        let line = |(name, Signature(parameters)): (&String, &Signature)| {
            parameters.iter().fold(name.clone(), |line, p| line + &parameter(p)) + "\n"
        };
        self.0.iter().map(line).collect()
    }

    /// Converts from text. Returns `None` for text that [`to_text`](Self::to_text) does not produce.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let parameter = |field: &str| {
            let (letter, rest) = field.split_at_checked(1)?;
            let (access, rest) = rest.split_at_checked(1)?;
            let (size, name) = rest.split_once(':')?;
            let size = size.parse().ok()?;
            let space = SPACES.iter().find(|(_, known)| *known == letter)?.0;
            Some(Parameter {
                space,
                constant: access == "r",
                size: Some(size).filter(|size| *size > 0),
                name: name.to_owned(),
            })
        };
        let line = |line: &str| {
            let mut fields = line.split('\t');
            let name = fields.next()?.to_owned();
            Some((name, Signature(fields.map(parameter).collect::<Option<_>>()?)))
        };
        text.lines().map(line).collect::<Option<_>>().map(Self)
    }
}

impl Signature {
    fn of(kernel: cl_kernel) -> Result<Self, cl_int> {
        let count = integer(&get_kernel_data(kernel, CL_KERNEL_NUM_ARGS)?);
        let count = cl_uint::try_from(count).unwrap_or(cl_uint::MAX);
        let parameter = |index| {
            let ask = |what| get_kernel_arg_data(kernel, index, what);
            let Ok(name) = ask(CL_KERNEL_ARG_TYPE_NAME).map(text) else {
                // For programs that were not built from source, only the number of parameters is known.
                let name = String::new();
                return Ok(Parameter { space: Space::Unknown, constant: false, size: None, name });
            };
            let access = ask(CL_KERNEL_ARG_ACCESS_QUALIFIER).map(|access| integer(&access));
            let qualified = access.is_ok_and(|access| ACCESSES.map(u64::from).contains(&access));
            let opaque = qualified || OPAQUE.contains(&&*name);
            let space = match cl_uint::try_from(integer(&ask(CL_KERNEL_ARG_ADDRESS_QUALIFIER)?)) {
                _ if opaque => Space::Opaque,
                Ok(CL_KERNEL_ARG_ADDRESS_GLOBAL) => Space::Global,
                Ok(CL_KERNEL_ARG_ADDRESS_CONSTANT) => Space::Constant,
                Ok(CL_KERNEL_ARG_ADDRESS_LOCAL) => Space::Local,
                _ => Space::Private,
            };
            let qualifiers = integer(&ask(CL_KERNEL_ARG_TYPE_QUALIFIER)?);
            let constant = qualifiers & u64::from(CL_KERNEL_ARG_TYPE_CONST) != 0;
            Ok(Parameter { space, constant, size: None, name })
        };
        (0..count).map(parameter).collect::<Result<_, _>>().map(Self)
    }

    /// The parameters that are arguments of a launch.
    pub(crate) fn parameters(&self) -> Vec<ParamInfo> {
        let arguments = self.0.iter().filter(|parameter| parameter.space != Space::Local);
        let info = |parameter: &Parameter| match parameter.space {
            Space::Unknown | Space::Opaque => ParamInfo::new(ParamKind::Unknown),
            Space::Private => {
                let known = value(&parameter.name);
                known.with_size(known.size.or(parameter.size))
            }
            space => pointer(&parameter.name, parameter.constant || space == Space::Constant),
        };
        arguments.map(info).collect()
    }

    /// For each argument, the required alignment of an address.
    pub(crate) fn alignments(&self) -> Vec<usize> {
        let arguments = self.0.iter().filter(|parameter| parameter.space != Space::Local);
        let alignment = |parameter: &Parameter| {
            let element = element(&parameter.name);
            let size = scalar(element).map(|(size, _)| size).or_else(|| vector(element));
            let memory = [Space::Global, Space::Constant].contains(&parameter.space);
            size.filter(|_| memory).unwrap_or(1)
        };
        arguments.map(alignment).collect()
    }

    /// The type of a parameter that is neither memory nor a value: an image, a sampler, a queue.
    pub(crate) fn opaque(&self) -> Option<&str> {
        let opaque = self.0.iter().find(|parameter| parameter.space == Space::Opaque);
        opaque.map(|parameter| parameter.name.as_str())
    }

    /// The indices of parameters in local memory, which are not arguments of a launch.
    pub(crate) fn local(&self) -> Vec<cl_uint> {
        let all = (0..).zip(&self.0);
        all.filter(|(_, parameter)| parameter.space == Space::Local).map(|(i, _)| i).collect()
    }
}

/// Creates an object for the kernel of this name.
pub(crate) fn create(program: cl_program, name: &str) -> Result<cl_kernel, cl_int> {
    let name = CString::new(name).map_err(|_| CL_INVALID_KERNEL_NAME)?;
    create_kernel(program, &name)
}

/// The type that a pointer points to.
fn element(name: &str) -> &str {
    name.trim_end().trim_end_matches('*').trim_end()
}

fn pointer(name: &str, constant: bool) -> ParamInfo {
    let element = element(name);
    // Bytes stand for memory of any type, and unsigned 16-bit words for types that OpenCL C does not have.
    let dtype = scalar(element)
        .map(|(_, dtype)| dtype)
        .filter(|dtype| !matches!(dtype, DType::I8 | DType::U8 | DType::U16));
    let access = if constant { ParamAccess::Read } else { ParamAccess::Write };
    ParamInfo::new(ParamKind::Memory).with_dtype(dtype).with_access(access)
}

fn value(name: &str) -> ParamInfo {
    let (size, dtype) = match scalar(name) {
        // A `bool` parameter has no element type of its own.
        Some((size, DType::U8)) => (Some(size), None),
        Some((size, dtype)) => (Some(size), Some(dtype)),
        // If the device has no vectors of `half`, a program can define any type with such a name.
        None => (vector(name).filter(|_| !name.starts_with("half")), None),
    };
    ParamInfo::new(ParamKind::Value).with_size(size).with_dtype(dtype)
}

/// The size and element type of a built-in type of OpenCL C.
fn scalar(name: &str) -> Option<(usize, DType)> {
    let dtype = match name {
        "char" => DType::I8,
        "uchar" | "unsigned char" => DType::U8,
        "short" => DType::I16,
        "ushort" | "unsigned short" => DType::U16,
        "int" => DType::I32,
        "uint" | "unsigned int" | "unsigned" => DType::U32,
        "long" => DType::I64,
        "ulong" | "unsigned long" => DType::U64,
        "half" => DType::F16,
        "float" => DType::F32,
        "double" => DType::F64,
        _ => return None,
    };
    Some((dtype.size(), dtype))
}

/// The size of a vector such as `float4`. Three components take the space of four.
fn vector(name: &str) -> Option<usize> {
    let digits = name.find(|c: char| c.is_ascii_digit())?;
    let (size, _) = scalar(&name[..digits])?;
    match name[digits..].parse().ok()? {
        count @ (2 | 4 | 8 | 16) => Some(count * size),
        3 => Some(4 * size),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_from_their_names() {
        assert_eq!(value("uint").dtype, Some(DType::U32));
        assert_eq!(value("float4").size, Some(16));
        assert_eq!(value("double3").size, Some(32));
        assert_eq!(value("struct particle").size, None);
        assert_eq!(value("float5").size, None);
        assert_eq!(value("half4").size, None);
        assert_eq!(pointer("float*", true).dtype, Some(DType::F32));
        assert_eq!(pointer("uchar*", false).dtype, None);
        assert_eq!(pointer("double2*", false).dtype, None);
        assert_eq!(pointer("int *", false).access, Some(ParamAccess::Write));
    }

    #[test]
    fn signatures_survive_as_text() {
        let parameter = |space, constant, name: &str| Parameter {
            space,
            constant,
            size: None,
            name: name.to_owned(),
        };
        let mut all = Signatures::default();
        let parameters = vec![
            parameter(Space::Global, true, "float*"),
            parameter(Space::Local, false, "int*"),
            parameter(Space::Private, false, "struct a b"),
        ];
        all.0.insert("k".to_owned(), Signature(parameters));
        all.0.insert("none".to_owned(), Signature::default());
        assert_eq!(all.unsized_types(), ["struct a b"]);
        all.set_size("struct a b", 12);
        assert!(all.unsized_types().is_empty());
        assert_eq!(Signatures::from_text(&all.to_text()), Some(all.clone()));
        assert_eq!(all.get("k").unwrap().parameters()[1].size, Some(12));
        assert_eq!(all.get("k").unwrap().local(), [1]);
        assert_eq!(all.get("k").unwrap().parameters().len(), 2);
        for broken in ["k\tx", "k\t", "k\txr0:float", "k\tgrfloat", "k\tgr-1:float"] {
            assert_eq!(Signatures::from_text(broken), None, "{broken:?}");
        }
    }
}
