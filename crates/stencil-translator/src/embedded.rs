//! The text of a program for embedded devices: the C function, and a kernel that calls it.

use crate::c;
use crate::description::Description;
use crate::syntax::Intent;
use crate::value::Type;

/// A kernel there takes no structs, so it takes each word of the struct of arguments by itself.
pub(crate) fn source(stencil: &Description) -> String {
    let text = c::source(stencil, c::Dialect::C);
    let name = stencil.name();
    let fields = stencil.fields.iter().enumerate().map(|(number, field)| {
        let constant = if field.intent == Intent::In { "const " } else { "" };
        let element = match field.element {
            Type::F32 => "float",
            Type::F64 => "double",
            Type::I32 => "int32_t",
            Type::I64 => "int64_t",
            Type::U32 | Type::Bool => "uint32_t",
        };
        format!("{constant}{element} *p{number}")
    });
    let bytes: usize = stencil.members().iter().map(|m| m.length.unwrap_or(1) * m.ty.size()).sum();
    let words = bytes.div_ceil(8);
    let numbers = (0..words).map(|word| format!("uint64_t w{word}"));
    let parameters: Vec<String> = fields.chain(numbers).collect();
    let pointers: String = (0..stencil.fields.len()).map(|number| format!("p{number}, ")).collect();
    let values: Vec<String> = (0..words).map(|word| format!("w{word}")).collect();
    format!(
        "#include \"kernel.h\"\n{text}
KERNEL({kernel}, {parameters})
{{
    const union {{ uint64_t words[{words}]; struct {name}_args args; }} all = {{{{{values}}}}};
    (void)launch;
    {name}_kernel({pointers}&all.args);
}}
",
        kernel = kernel_name(&name, &text),
        parameters = parameters.join(", "),
        values = values.join(", "),
    )
}

/// The name of the kernel has a hash (FNV-1a) of the C text, so that a program made of another text is refused.
fn kernel_name(name: &str, text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{name}_kernel_{hash:016x}")
}
