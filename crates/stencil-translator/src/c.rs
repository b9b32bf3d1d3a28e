//! C text. The dialects differ in the names of a small table.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::bodies::Case;
use crate::body::{Body, Expr, ExprKind, Offset, Statement};
use crate::description::{Description, Field};
use crate::op::{Binary, Function, Unary};
use crate::syntax::{Column, Direction, Intent};
use crate::value::{Type, Value};

/// A kind of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenCL C 1.2.
    OpenCl,
    /// CUDA C, for NVRTC.
    Cuda,
    /// HIP C, for hiprtc.
    Hip,
    /// C99, for processors without an operating system, too.
    C,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 4] = [Self::OpenCl, Self::Cuda, Self::Hip, Self::C];

    /// The options that a compiler must get, so that all devices compute the same bits.
    ///
    /// OpenCL has no option against contraction, so its text has a pragma. A device that does not advertise correctly
    /// rounded division of `f32` refuses the option, and is not exact for `f32`. Those of C are for gcc. Without
    /// `-frounding-math`, gcc 12 makes `0.0 - x` a negation where `x` was an integer, which gives zero another sign.
    pub const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::OpenCl => &["-cl-fp32-correctly-rounded-divide-sqrt"],
            Self::Cuda => &["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"],
            Self::Hip => &["-fhip-fp32-correctly-rounded-divide-sqrt", "-ffp-contract=off"],
            Self::C => &["-std=c99", "-ffp-contract=off", "-frounding-math"],
        }
    }

    /// The names of the dialect.
    const fn names(self) -> &'static Names {
        const GPU: Names = Names {
            types: ["float", "double", "int", "long long", "unsigned int", "bool"],
            item: "unsigned int",
            unsigned_long: "unsigned long long",
            long_suffix: "LL",
            helper: "static __device__ inline ",
            kernel: "extern \"C\" __global__ void",
            memory: "",
            restrict: "__restrict__",
            has_overloads: false,
        };
        match self {
            Self::OpenCl => &Names {
                types: ["float", "double", "int", "long", "uint", "bool"],
                item: "long",
                unsigned_long: "ulong",
                long_suffix: "L",
                helper: "static inline ",
                kernel: "__kernel void",
                memory: "__global ",
                restrict: "restrict",
                has_overloads: true,
            },
            Self::Cuda | Self::Hip => &GPU,
            Self::C => &Names {
                types: ["float", "double", "int32_t", "int64_t", "uint32_t", "_Bool"],
                item: "int64_t",
                unsigned_long: "uint64_t",
                long_suffix: "LL",
                helper: "static inline ",
                kernel: "void",
                memory: "",
                restrict: "restrict",
                has_overloads: false,
            },
        }
    }

    /// The number of the work-item on a dimension, x first.
    fn item(self, dimension: usize) -> String {
        match self {
            Self::OpenCl => format!("(long)get_global_id({dimension})"),
            Self::Cuda | Self::Hip => {
                let axis = ["x", "y", "z"][dimension];
                format!("blockIdx.{axis} * blockDim.{axis} + threadIdx.{axis}")
            }
            Self::C => String::new(),
        }
    }
}

struct Names {
    /// In the order of [`Type::ALL`].
    types: [&'static str; 6],
    /// The type of a point's place in the box. Boxes have at most 2³¹ points along an axis. Arithmetic of 32 bits takes
    /// GPUs fewer instructions.
    item: &'static str,
    unsigned_long: &'static str,
    long_suffix: &'static str,
    helper: &'static str,
    kernel: &'static str,
    /// The qualifier of memory.
    memory: &'static str,
    restrict: &'static str,
    /// Whether `sqrt` is that of `float`, too.
    has_overloads: bool,
}

impl Names {
    fn ty(&self, ty: Type) -> &'static str {
        self.types[ty as usize]
    }

    /// The unsigned type of an integer type, in which arithmetic wraps.
    fn unsigned(&self, ty: Type) -> &'static str {
        if ty == Type::I64 { self.unsigned_long } else { self.ty(Type::U32) }
    }
}

/// The text of a kernel.
pub(crate) fn source(stencil: &Description, dialect: Dialect) -> String {
    let mut used = Used::default();
    stencil.bodies.visit(&mut |expression| used.expression(expression));
    used.types.extend(stencil.fields.iter().map(|field| field.element));
    used.types.extend(stencil.scalars.iter().map(|scalar| scalar.ty));
    let mut writer = Writer {
        stencil,
        body: stencil.bodies.at([false; 2]),
        dialect,
        names: dialect.names(),
        args: if dialect == Dialect::C { "args->" } else { "args." },
        text: String::new(),
        indent: 0,
    };
    writer.prologue(&used);
    writer.arguments();
    writer.conversions(&used);
    writer.kernel();
    writer.text
}

/// What a body needs.
#[derive(Default)]
struct Used {
    types: BTreeSet<Type>,
    /// From floats to integers.
    conversions: BTreeSet<(Type, Type)>,
    has_functions: bool,
}

impl Used {
    fn expression(&mut self, expression: &Expr) {
        self.types.insert(expression.ty);
        match &expression.kind {
            ExprKind::Cast(value) if value.ty.is_float() && expression.ty.is_integer() => {
                self.conversions.insert((value.ty, expression.ty));
            }
            ExprKind::Call(..) => self.has_functions = true,
            _ => {}
        }
    }
}

/// How tightly an expression binds; operators that are not listed get brackets wherever they are operands.
const LOOSE: u8 = 0;
const SUM: u8 = 1;
const PRODUCT: u8 = 2;
const UNARY: u8 = 3;
const ATOM: u8 = 4;

/// The qualifier of the elements of a field.
fn constant(field: &Field) -> &'static str {
    if field.intent == Intent::In { "const " } else { "" }
}

struct Writer<'a> {
    stencil: &'a Description,
    /// The body that is being written.
    body: &'a Body,
    dialect: Dialect,
    names: &'static Names,
    args: &'static str,
    text: String,
    indent: usize,
}

impl<'a> Writer<'a> {
    fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        let indent = if line.is_empty() { 0 } else { 4 * self.indent };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{:indent$}{line}", "");
    }

    fn prologue(&mut self, used: &Used) {
        match self.dialect {
            Dialect::OpenCl => {
                self.line("#pragma OPENCL FP_CONTRACT OFF");
                if used.types.contains(&Type::F64) {
                    self.line("#pragma OPENCL EXTENSION cl_khr_fp64 : enable");
                }
            }
            Dialect::Cuda => return,
            Dialect::Hip => {
                self.line("#ifdef __clang__");
                self.line("#pragma clang fp contract(off)");
                self.line("#endif");
            }
            Dialect::C => {
                self.line("#include <float.h>");
                if used.has_functions {
                    self.line("#include <math.h>");
                }
                self.line("#include <stdint.h>");
                self.line("");
                self.line("#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0");
                self.line("#error \"floats must be rounded after each operation\"");
                self.line("#endif");
            }
        }
        self.line("");
    }

    fn arguments(&mut self) {
        self.line(format!("struct {}_args {{", self.stencil.name()));
        self.indent += 1;
        for member in self.stencil.members() {
            let length = member.length.map(|length| format!("[{length}]")).unwrap_or_default();
            self.line(format!("{} {}{length};", self.names.ty(member.ty), member.name));
        }
        self.indent -= 1;
        self.line("};");
        self.line("");
    }

    /// Conversions from floats, which saturate.
    fn conversions(&mut self, used: &Used) {
        for &(from, to) in &used.conversions {
            // The bounds are floats of both types.
            let (low, high, least, greatest) = match to {
                Type::I64 => (
                    "-9223372036854775808.0",
                    "9223372036854775808.0",
                    self.literal(Value::I64(i64::MIN)),
                    self.literal(Value::I64(i64::MAX)),
                ),
                Type::I32 => (
                    "-2147483648.0",
                    "2147483648.0",
                    self.literal(Value::I32(i32::MIN)),
                    self.literal(Value::I32(i32::MAX)),
                ),
                _ => ("0.0", "4294967296.0", "0u".into(), "4294967295u".into()),
            };
            let f = if from == Type::F32 { "f" } else { "" };
            let (helper, result, operand) =
                (self.names.helper, self.names.ty(to), self.names.ty(from));
            self.line(format!("{helper}{result} {}({operand} x)", self.conversion(from, to)));
            self.line("{");
            self.indent += 1;
            let zero = self.literal(to.integer(0).expect("zero is an integer"));
            self.line(format!(
                "return x != x ? {zero} : x <= {low}{f} ? {least} : x >= {high}{f} ? {greatest} : ({result})x;"
            ));
            self.indent -= 1;
            self.line("}");
            self.line("");
        }
    }

    /// No local begins with `to_`, whatever names users choose.
    fn conversion(&self, from: Type, to: Type) -> String {
        format!("to_{}_{to}_from_{from}", self.stencil.name())
    }

    fn kernel(&mut self) {
        let (names, rank, name) = (self.names, self.stencil.rank, self.stencil.name());
        let mut parameters = Vec::new();
        for field in &self.stencil.fields {
            let (memory, ty, restrict) = (names.memory, names.ty(field.element), names.restrict);
            let constant = constant(field);
            parameters.push(format!("{memory}{constant}{ty} *{restrict} p_{}", field.name));
        }
        let by = if self.dialect == Dialect::C { "*restrict " } else { "" };
        parameters.push(format!("const struct {name}_args {by}args"));
        self.line(format!("{} {name}_kernel({})", names.kernel, parameters.join(", ")));
        self.line("{");
        self.indent += 1;
        let item = names.item;
        let along = self.stencil.column.map(|column| column.axis);
        let across: Vec<usize> = (0..rank).filter(|axis| Some(*axis) != along).collect();
        if self.dialect == Dialect::C {
            for axis in across {
                self.line(format!(
                    "for ({item} i{axis} = 0; i{axis} < {}extents[{axis}]; i{axis}++) {{",
                    self.args
                ));
                self.indent += 1;
            }
        } else {
            for (place, axis) in across.iter().enumerate() {
                let number = self.dialect.item(across.len() - 1 - place);
                self.line(format!("const {item} i{axis} = {number};"));
            }
            let convert =
                if item == names.ty(Type::I64) { String::new() } else { format!("({item})") };
            let outside = |axis| format!("i{axis} >= {convert}{}extents[{axis}]", self.args);
            let outside: Vec<_> = across.iter().map(outside).collect();
            let outside = match &outside[..] {
                [] => format!("{} > 0", self.dialect.item(0)),
                outside => outside.join(" || "),
            };
            self.line(format!("if ({outside})"));
            self.line("    return;");
        }
        if let Some(column) = self.stencil.column {
            self.column(column);
        }
        for field in &self.stencil.fields {
            let line = self.pointer(field);
            self.line(line);
        }
        for field in self.stencil.outputs() {
            self.line(format!("{} out_{};", names.ty(field.element), field.name));
        }
        self.bodies();
        for Field { name, .. } in self.stencil.outputs() {
            self.line(format!("at_{name}[0] = out_{name};"));
        }
        for field in self.stencil.carried(None) {
            let name = &self.stencil.fields[field].name;
            self.line(format!("previous_{name} = out_{name};"));
        }
        while self.indent > 0 {
            self.indent -= 1;
            self.line("}");
        }
    }

    /// The loop over a column. What it reads at the previous point is kept in variables.
    fn column(&mut self, Column { direction, axis, ghosts }: Column) {
        let (integer, extent) = (self.names.ty(Type::I64), format!("{}extents[{axis}]", self.args));
        for field in self.stencil.carried(None) {
            let field = &self.stencil.fields[field];
            let before = match direction {
                Direction::Forward => "-1",
                Direction::Backward => &extent,
            };
            let value = match ghosts {
                true => format!("p_{}[{}]", field.name, self.place(field, Some((axis, before)))),
                // The first point sets it.
                false => "0".to_owned(),
            };
            self.line(format!(
                "{} previous_{} = {value};",
                self.names.ty(field.element),
                field.name
            ));
        }
        self.line(match direction {
            Direction::Forward => {
                format!("for ({integer} i{axis} = 0; i{axis} < {extent}; i{axis}++) {{")
            }
            Direction::Backward => {
                format!("for ({integer} i{axis} = {extent} - 1; i{axis} >= 0; i{axis}--) {{")
            }
        });
        self.indent += 1;
    }

    /// The statements of a point.
    fn bodies(&mut self) {
        let cases = self.stencil.bodies.cases();
        let Some(Column { direction, axis, .. }) =
            self.stencil.column.filter(|_| !cases.is_empty())
        else {
            let body = self.body;
            return self.statements(&body.statements);
        };
        let extent = format!("{}extents[{axis}]", self.args);
        let (low, high) = (format!("i{axis} == 0"), format!("i{axis} == {extent} - 1"));
        let (first, last) = match direction {
            Direction::Forward => (low, high),
            Direction::Backward => (high, low),
        };
        let mut before = "";
        for (case, body) in cases {
            let condition = match case {
                Case::Only => &format!("{extent} == 1"),
                Case::First => &first,
                Case::Last => &last,
            };
            self.line(format!("{before}if ({condition}) {{"));
            self.nested_body(&self.stencil.bodies.all()[body]);
            before = "} else ";
        }
        self.line(format!("{before}{{"));
        self.nested_body(self.stencil.bodies.at([false; 2]));
        self.line("}");
    }

    fn nested_body(&mut self, body: &'a Body) {
        self.body = body;
        self.nested(&body.statements);
    }

    /// The declaration of a pointer to a point's element of a field.
    fn pointer(&self, field: &Field) -> String {
        let (memory, constant) = (self.names.memory, constant(field));
        let (name, ty) = (&field.name, self.names.ty(field.element));
        let place = self.place(field, None);
        format!("{memory}{constant}{ty} *const at_{name} = p_{name} + ({place});")
    }

    /// The element of a point of a field. Its place along one axis may be another than that of the work-item.
    fn place(&self, field: &Field, other: Option<(usize, &str)>) -> String {
        let (name, args) = (&field.name, self.args);
        let along = |axis: usize| match other {
            Some((of, place)) if of == axis => place.to_owned(),
            _ => format!("i{axis}"),
        };
        let mut text = format!("{args}{name}_first");
        for axis in 0..self.stencil.rank - 1 {
            let _ = write!(text, " + {} * {args}{name}_strides[{axis}]", along(axis));
        }
        let _ = write!(text, " + {}", along(self.stencil.rank - 1));
        text
    }

    fn read(&self, field: usize, offset: Offset) -> String {
        let (name, last) = (&self.stencil.fields[field].name, self.stencil.rank - 1);
        let mut place = String::new();
        for (axis, &by) in offset[..=last].iter().enumerate().filter(|(_, by)| **by != 0) {
            place.push_str(match (place.is_empty(), by < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            });
            let stride = format!("{}{name}_strides[{axis}]", self.args);
            let _ = match (axis == last, by.abs()) {
                (true, by) => write!(place, "{by}"),
                (false, 1) => write!(place, "{stride}"),
                (false, by) => write!(place, "{by} * {stride}"),
            };
        }
        format!("at_{name}[{}]", if place.is_empty() { "0" } else { &place })
    }

    fn variable(&self, variable: usize) -> String {
        format!("v{variable}_{}", self.body.variables[variable].name)
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Let { variable, value } => {
                    let declared = &self.body.variables[*variable];
                    let constant = if declared.is_mutable { "" } else { "const " };
                    let (ty, name) = (self.names.ty(declared.ty), self.variable(*variable));
                    let value = self.expression(value, LOOSE);
                    self.line(format!("{constant}{ty} {name} = {value};"));
                }
                Statement::Assign { variable, value, .. } => {
                    let value = self.expression(value, LOOSE);
                    self.line(format!("{} = {value};", self.variable(*variable)));
                }
                Statement::Set { field, value, .. } => {
                    let value = self.expression(value, LOOSE);
                    self.line(format!("out_{} = {value};", self.stencil.fields[*field].name));
                }
                Statement::If { condition, then, otherwise, .. } => {
                    self.line(format!("if ({}) {{", self.expression(condition, LOOSE)));
                    self.nested(then);
                    if !otherwise.is_empty() {
                        self.line("} else {");
                        self.nested(otherwise);
                    }
                    self.line("}");
                }
            }
        }
    }

    fn nested(&mut self, statements: &[Statement]) {
        self.indent += 1;
        self.statements(statements);
        self.indent -= 1;
    }

    /// The text of an expression, in brackets if it binds less tightly than `at_least`.
    fn expression(&self, expression: &Expr, at_least: u8) -> String {
        let (text, binds) = self.bare(expression);
        if binds < at_least { format!("({text})") } else { text }
    }

    fn bare(&self, expression: &Expr) -> (String, u8) {
        let ty = expression.ty;
        match &expression.kind {
            ExprKind::Literal(value) => {
                let binds = if value.is_negative() { UNARY } else { ATOM };
                (self.literal(*value), binds)
            }
            ExprKind::Variable(variable) => (self.variable(*variable), ATOM),
            ExprKind::Scalar(scalar) => {
                let scalar = &self.stencil.scalars[*scalar];
                let value = format!("{}{}_value", self.args, scalar.name);
                if scalar.ty == Type::Bool {
                    (format!("{value} != 0"), LOOSE)
                } else {
                    (value, ATOM)
                }
            }
            ExprKind::Read(field, offset) => (self.read(*field, *offset), ATOM),
            ExprKind::Previous(field) => {
                (format!("previous_{}", self.stencil.fields[*field].name), ATOM)
            }
            ExprKind::Index(axis) => (format!("{}first[{axis}] + i{axis}", self.args), SUM),
            ExprKind::Extent(axis) => (format!("{}grid[{axis}]", self.args), ATOM),
            ExprKind::Unary(Unary::Neg, operand) if ty.is_integer() => {
                let unsigned = self.names.unsigned(ty);
                (
                    format!(
                        "({})(0u - ({unsigned}){})",
                        self.names.ty(ty),
                        self.expression(operand, ATOM)
                    ),
                    UNARY,
                )
            }
            ExprKind::Unary(op, operand) => {
                let (sign, binds) = match op {
                    Unary::Neg => ("-", UNARY),
                    Unary::Not if ty.is_integer() => ("~", UNARY),
                    // Compilers warn of it beside a comparison.
                    Unary::Not => ("!", LOOSE),
                };
                (format!("{sign}{}", self.expression(operand, ATOM)), binds)
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right, ty),
            ExprKind::Cast(value) if value.ty.is_float() && ty.is_integer() => (
                format!("{}({})", self.conversion(value.ty, ty), self.expression(value, LOOSE)),
                ATOM,
            ),
            ExprKind::Cast(value) => {
                (format!("({}){}", self.names.ty(ty), self.expression(value, ATOM)), UNARY)
            }
            ExprKind::Select(condition, then, otherwise) => {
                let [a, b, c] = [condition, then, otherwise].map(|part| self.expression(part, SUM));
                (format!("{a} ? {b} : {c}"), LOOSE)
            }
            ExprKind::Call(function, operands) => {
                let operands: Vec<_> =
                    operands.iter().map(|operand| self.expression(operand, LOOSE)).collect();
                (format!("{}({})", self.function(*function, ty), operands.join(", ")), ATOM)
            }
        }
    }

    fn binary(&self, op: Binary, left: &Expr, right: &Expr, ty: Type) -> (String, u8) {
        let sign = op.sign();
        let wraps = matches!(op, Binary::Add | Binary::Sub | Binary::Mul);
        if wraps && matches!(ty, Type::I32 | Type::I64) {
            let unsigned = self.names.unsigned(ty);
            let [a, b] = [left, right]
                .map(|operand| format!("({unsigned}){}", self.expression(operand, ATOM)));
            return (format!("({})({a} {sign} {b})", self.names.ty(ty)), UNARY);
        }
        let (a, b, binds) = match op {
            Binary::Add | Binary::Sub => (SUM, PRODUCT, SUM),
            Binary::Mul | Binary::Div | Binary::Rem => (PRODUCT, UNARY, PRODUCT),
            // Compilers warn of bits and logic without brackets.
            _ => (SUM, SUM, LOOSE),
        };
        (format!("{} {sign} {}", self.expression(left, a), self.expression(right, b)), binds)
    }

    fn function(&self, function: Function, ty: Type) -> String {
        let name = match function {
            Function::Abs => "fabs",
            Function::MulAdd => "fma",
            Function::Pow => "pow",
            other => other.name(),
        };
        let suffix = if ty == Type::F32 && !self.names.has_overloads { "f" } else { "" };
        format!("{name}{suffix}")
    }

    fn literal(&self, value: Value) -> String {
        let long = self.names.long_suffix;
        let sign = if value.is_negative() { "-" } else { "" };
        let digits = value.digits();
        match value {
            // Without its sign the least integer has no literal.
            Value::I32(i32::MIN) => "(-2147483647 - 1)".into(),
            Value::I64(i64::MIN) => format!("(-9223372036854775807{long} - 1)"),
            Value::F32(_) => format!("{sign}{digits}f"),
            Value::I64(_) => format!("{sign}{digits}{long}"),
            Value::U32(_) => format!("{digits}u"),
            Value::Bool(value) => u8::from(value).to_string(),
            Value::F64(_) | Value::I32(_) => format!("{sign}{digits}"),
        }
    }
}
