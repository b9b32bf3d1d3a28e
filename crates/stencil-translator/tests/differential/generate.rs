//! Random stencils. Each is written once, with marks where the subset and plain Rust differ.

use std::collections::BTreeSet;

use fastrand::Rng;
use stencil_translator::{Column, Direction, Intent, Reduction, Type};

pub(crate) type Offsets = BTreeSet<Vec<i64>>;

/// A random stencil or reduction.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) reduction: Option<Reduction>,
    /// The last field of a reduction is the one of its values, which its text does not have.
    pub(crate) fields: Vec<(Intent, Type)>,
    pub(crate) scalars: Vec<Type>,
    pub(crate) rank: usize,
    pub(crate) column: Option<Column>,
    /// Where each field is read, as the generator counted it.
    pub(crate) reads: Vec<Offsets>,
    text: String,
    seed: u64,
}

/// How a text with marks is read: `«in the subset¦in Rust»`. In the subset, most literals lose a suffix `‹_f64›`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Subset,
    Rust,
}

impl Program {
    /// The stencil.
    pub(crate) fn subset(&self) -> String {
        self.read(Reading::Subset)
    }

    /// The same as plain Rust, for the prelude.
    pub(crate) fn rust(&self) -> String {
        self.read(Reading::Rust)
    }

    fn read(&self, reading: Reading) -> String {
        let mut random = Rng::with_seed(self.seed);
        let (mut text, mut is_kept) = (String::new(), true);
        for c in self.text.chars() {
            match c {
                '«' => is_kept = reading != Reading::Rust,
                '¦' => is_kept = reading == Reading::Rust,
                '‹' => is_kept = is_kept && (reading == Reading::Rust || random.u8(..) < 40),
                '›' | '»' => is_kept = true,
                c if is_kept => text.push(c),
                _ => {}
            }
        }
        text
    }
}

/// A function that is being written.
struct Scope {
    fields: Vec<(String, Intent, Type)>,
    scalars: Vec<(String, Type)>,
    /// Name, type, whether it is mutable, and how many blocks with values it is in.
    variables: Vec<(String, Type, bool, usize)>,
    loops: Vec<(String, i64, i64)>,
    tables: Vec<(String, Type, Vec<i64>)>,
    reads: Vec<Offsets>,
    value_blocks: usize,
    /// The offset of the previous point, where outputs may be read there.
    previous: Option<String>,
}

struct Helper {
    name: String,
    fields: Vec<Type>,
    scalars: Vec<Type>,
    returns: Type,
    reads: Vec<Offsets>,
}

struct Generator {
    random: Rng,
    rank: usize,
    helpers: Vec<Helper>,
    scope: Scope,
    names: usize,
    budget: usize,
    /// Whether the type of a literal follows from its place.
    is_typed: bool,
}

const NUMBERS: [Type; 5] = [Type::F32, Type::F64, Type::I32, Type::I64, Type::U32];
const FLOATS: [&str; 15] = [
    "0.0",
    "1.0",
    "-1.0",
    "0.1",
    "2.5",
    "1e-7",
    "3.4e38",
    "1e-45",
    "0.3333333333333333",
    "16777217.0",
    "-0.0",
    "1e10",
    "1.17549435e-38",
    "4294967295.5",
    "-2147483648.5",
];

/// A stencil of one axis without scalars, which is the same text in Rust.
pub(crate) fn written(name: &str, fields: &[(Intent, Type)], text: &str) -> Program {
    Program {
        name: name.to_owned(),
        reduction: None,
        fields: fields.to_vec(),
        scalars: Vec::new(),
        rank: 1,
        column: None,
        reads: Vec::new(),
        text: text.to_owned(),
        seed: 0,
    }
}

/// The stencil of a seed.
pub(crate) fn program(seed: u64, name: String) -> Program {
    let mut random = Rng::with_seed(seed);
    let rank = random.usize(1..=3);
    let empty = Scope {
        fields: Vec::new(),
        scalars: Vec::new(),
        variables: Vec::new(),
        loops: Vec::new(),
        tables: Vec::new(),
        reads: Vec::new(),
        value_blocks: 0,
        previous: None,
    };
    let generator = Generator {
        random,
        rank,
        helpers: Vec::new(),
        scope: empty,
        names: 0,
        budget: 0,
        is_typed: true,
    };
    generator.program(seed, name)
}

impl Generator {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    fn number_type(&mut self) -> Type {
        self.pick(&NUMBERS)
    }

    fn new_name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn program(mut self, seed: u64, name: String) -> Program {
        let mut text = String::new();
        for _ in 0..self.random.usize(0..3) {
            text += &self.helper(&name);
        }
        let reduction = if self.chance(25) { Some(self.pick(&Reduction::ALL)) } else { None };
        let mut fields: Vec<(Intent, Type)> = Vec::new();
        let outputs = if reduction.is_some() { 0 } else { self.random.usize(1..=2) };
        for _ in 0..outputs {
            let intent = if self.chance(30) { Intent::InOut } else { Intent::Out };
            fields.push((intent, self.number_type()));
        }
        for _ in 0..self.random.usize(1..=3) {
            let ty = self.number_type();
            fields.push((Intent::In, ty));
        }
        self.random.shuffle(&mut fields);
        let scalars: Vec<Type> =
            (0..self.random.usize(0..4)).map(|_| self.pick(&Type::ALL)).collect();
        self.enter(&fields, &scalars);
        self.budget = 60;
        let mut body = self.tables();
        for _ in 0..self.random.usize(1..5) {
            body += &self.statement(2);
        }
        let rank = self.rank;
        let column = (reduction.is_none() && self.chance(40)).then(|| Column {
            direction: self.pick(&Direction::ALL),
            axis: self.random.usize(..rank),
            ghosts: self.chance(25),
        });
        let (attribute, returned) = match (reduction, column) {
            (None, None) => {
                body += &self.sets(&fields);
                ("stencil".to_owned(), String::new())
            }
            (None, Some(column)) => {
                body += &self.ends(&fields, column);
                let Column { direction, axis, ghosts } = column;
                let axis = if axis > 0 { format!(", axis = {axis}") } else { String::new() };
                let ghosts = if ghosts { ", ghosts" } else { "" };
                (format!("column({}{axis}{ghosts})", direction.name()), String::new())
            }
            (Some(reduction), _) => {
                let ty = self.number_type();
                self.budget += 12;
                body += &format!("{}\n", self.expression(ty, 4));
                fields.push((Intent::Out, ty));
                (format!("reduction({})", reduction.name()), format!(" -> {ty}"))
            }
        };
        let mut parameters: Vec<String> = Vec::new();
        for ((name, ..), (intent, ty)) in self.scope.fields.iter().zip(&fields) {
            parameters.push(format!("{name}: {}<{ty}, {rank}>", intent.name()));
        }
        parameters.extend(self.scope.scalars.iter().map(|(name, ty)| format!("{name}: {ty}")));
        let parameters = parameters.join(", ");
        text += &format!(
            "«#[{attribute}]¦»\nfn {name}(«¦ctx: &Ctx, »{parameters}){returned} {{\n{body}}}\n"
        );
        let mut reads = self.scope.reads;
        reads.resize(fields.len(), Offsets::new());
        Program { name, reduction, fields, scalars, rank, column, reads, text, seed }
    }

    /// The end of a column, which sets its outputs. All but the first point may read them at the previous one; it may,
    /// too, if it is a ghost.
    fn ends(&mut self, fields: &[(Intent, Type)], column: Column) -> String {
        let mut previous = vec!["0".to_owned(); self.rank];
        previous[column.axis] = column.direction.previous().to_string();
        let [first, last] = [0, 1].map(|end| {
            let name = ["first", "last"][end];
            format!("«{name}()¦ctx.ends[{end}] != 0»")
        });
        let mut text = String::new();
        for (name, end) in [("y0", &first), ("y1", &last)] {
            if self.chance(30) {
                text += &format!("let {name}: bool = {end};\n");
                self.scope.variables.push((name.to_owned(), Type::Bool, false, 0));
            }
        }
        let branch = |generator: &mut Self, is_first: bool| {
            let visible = generator.scope.variables.len();
            let has_previous = !is_first || column.ghosts;
            generator.scope.previous = has_previous.then(|| previous.join(", "));
            generator.budget += 20;
            let mut text = String::new();
            for _ in 0..generator.random.usize(0..3) {
                text += &generator.statement(1);
            }
            text += &generator.sets(fields);
            generator.scope.previous = None;
            generator.scope.variables.truncate(visible);
            text
        };
        let parts = match self.random.u8(..6) {
            0 => return text + &branch(self, true),
            1 | 2 => vec![(first, true), (String::new(), false)],
            3 | 4 => vec![(first, true), (last, false), (String::new(), false)],
            _ => {
                let last = format!("({last}) && !({first})");
                vec![(last, false), (first, true), (String::new(), false)]
            }
        };
        for (place, (condition, is_first)) in parts.into_iter().enumerate() {
            let before = if place > 0 { " else " } else { "" };
            let condition = match &*condition {
                "" => String::new(),
                condition => format!("if {condition} "),
            };
            text += &format!("{before}{condition}{{\n{}}}", branch(self, is_first));
        }
        text + "\n"
    }

    fn enter(&mut self, fields: &[(Intent, Type)], scalars: &[Type]) {
        let named = fields.iter().enumerate();
        self.scope = Scope {
            fields: named
                .map(|(number, (intent, ty))| (format!("t{number}"), *intent, *ty))
                .collect(),
            scalars: scalars
                .iter()
                .enumerate()
                .map(|(number, ty)| (format!("s{number}"), *ty))
                .collect(),
            variables: Vec::new(),
            loops: Vec::new(),
            tables: Vec::new(),
            reads: vec![BTreeSet::new(); fields.len()],
            value_blocks: 0,
            previous: None,
        };
    }

    fn helper(&mut self, program: &str) -> String {
        let fields: Vec<_> = (0..self.random.usize(0..=2)).map(|_| self.number_type()).collect();
        let scalars: Vec<_> =
            (0..self.random.usize(0..=2)).map(|_| self.pick(&Type::ALL)).collect();
        let returns = self.pick(&Type::ALL);
        let read: Vec<_> = fields.iter().map(|ty| (Intent::In, *ty)).collect();
        self.enter(&read, &scalars);
        self.budget = 20;
        let mut body = self.tables();
        for _ in 0..self.random.usize(0..3) {
            body += &self.statement(1);
        }
        let value = self.expression(returns, 3);
        let name = format!("{program}_h{}", self.helpers.len());
        let rank = self.rank;
        let mut parameters: Vec<String> = self
            .scope
            .fields
            .iter()
            .map(|(name, _, ty)| format!("{name}: In<{ty}, {rank}>"))
            .collect();
        parameters.extend(self.scope.scalars.iter().map(|(name, ty)| format!("{name}: {ty}")));
        let parameters = parameters.join(", ");
        let text = format!(
            "«#[stencil_fn]¦»\nfn {name}(«¦ctx: &Ctx, »{parameters}) -> {returns} {{\n{body}{value}\n}}\n"
        );
        let reads = std::mem::take(&mut self.scope.reads);
        self.helpers.push(Helper { name, fields, scalars, returns, reads });
        text
    }

    fn tables(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.random.usize(0..3) {
            let ty = if self.chance(50) { Type::I64 } else { self.number_type() };
            let name = self.new_name("W");
            let integers: Vec<i64> = (0..3).map(|_| self.random.i64(0..3)).collect();
            let elements: Vec<_> = integers
                .iter()
                .map(|value| match ty {
                    ty if ty.is_float() => format!("{value}.5‹_{ty}› / 3.0‹_{ty}›"),
                    ty => format!("{value}‹_{ty}›"),
                })
                .collect();
            text += &format!("const {name}: [{ty}; 3] = [{}];\n", elements.join(", "));
            self.scope.tables.push((name, ty, integers));
        }
        text
    }

    fn sets(&mut self, fields: &[(Intent, Type)]) -> String {
        let mut text = String::new();
        for (number, (intent, ty)) in fields.iter().enumerate() {
            if !intent.is_output() {
                continue;
            }
            self.budget += 12;
            if self.chance(30) {
                let (condition, a, b) =
                    (self.condition(2), self.expression(*ty, 3), self.expression(*ty, 3));
                text += &format!(
                    "if {condition} {{ t{number}.set({a}); }} else {{ t{number}.set({b}); }}\n"
                );
            } else {
                let value = self.expression(*ty, 4);
                text += &format!("t{number}.set({value});\n");
            }
        }
        text
    }

    fn statement(&mut self, depth: usize) -> String {
        self.budget = self.budget.saturating_sub(1);
        match self.random.u8(..10) {
            0..=3 => self.declaration(),
            4..=6 => self.assignment().unwrap_or_else(|| self.declaration()),
            7 | 8 if depth > 0 => {
                let condition = self.condition(2);
                let then = self.nested(depth);
                if self.chance(50) {
                    format!("if {condition} {{\n{then}}}\n")
                } else {
                    let otherwise = self.nested(depth);
                    format!("if {condition} {{\n{then}}} else {{\n{otherwise}}}\n")
                }
            }
            9 if depth > 0 && self.scope.loops.len() < 2 => {
                let name = self.new_name("k");
                let from = self.random.i64(-1..2);
                let to = from + self.random.i64(0..3);
                self.scope.loops.push((name.clone(), from, to));
                let body = self.nested(depth);
                self.scope.loops.pop();
                if self.chance(50) {
                    format!("for {name} in {from}«¦_i64»..={to} {{\n{body}}}\n")
                } else {
                    format!("for {name} in {from}«¦_i64»..{} {{\n{body}}}\n", to + 1)
                }
            }
            _ => self.declaration(),
        }
    }

    fn nested(&mut self, depth: usize) -> String {
        let visible = self.scope.variables.len();
        let text = (0..self.random.usize(1..3)).map(|_| self.statement(depth - 1)).collect();
        self.scope.variables.truncate(visible);
        text
    }

    fn declaration(&mut self) -> String {
        let ty = self.pick(&Type::ALL);
        let is_annotated = self.chance(50);
        let value = self.typed(is_annotated, |generator| generator.expression(ty, 3));
        let is_mutable = self.chance(60);
        let shadowed = self.random.usize(..self.scope.variables.len() + 4);
        let name = match self.scope.variables.get(shadowed) {
            Some((name, ..)) => name.clone(),
            None => self.new_name("x"),
        };
        let annotation = if is_annotated { format!(": {ty}") } else { format!("«¦: {ty}»") };
        let mutable = if is_mutable { "mut " } else { "" };
        self.scope.variables.push((name.clone(), ty, is_mutable, self.scope.value_blocks));
        format!("let {mutable}{name}{annotation} = {value};\n")
    }

    fn typed<T>(&mut self, is_typed: bool, body: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.is_typed, is_typed);
        let result = body(self);
        self.is_typed = before;
        result
    }

    /// The variables that are not shadowed.
    fn visible(&self) -> Vec<(String, Type, bool, usize)> {
        let all = &self.scope.variables;
        let is_last = |place: &usize| all[place + 1..].iter().all(|other| other.0 != all[*place].0);
        (0..all.len()).filter(is_last).map(|place| all[place].clone()).collect()
    }

    fn assignment(&mut self) -> Option<String> {
        let blocks = self.scope.value_blocks;
        let mutable: Vec<_> = self.visible().into_iter().filter(|v| v.2 && v.3 == blocks).collect();
        let (name, ty, ..) = mutable.get(self.random.usize(..mutable.len().max(1)))?.clone();
        let value = self.expression(ty, 3);
        let op = match ty {
            Type::Bool => self.pick(&["=", "&=", "|=", "^="]),
            ty if ty.is_float() => self.pick(&["=", "+=", "-=", "*=", "/="]),
            _ => self.pick(&["=", "+=", "-=", "*=", "&=", "|=", "^="]),
        };
        Some(format!("{name} {op} {value};\n"))
    }

    /// A condition that the translator does not know.
    fn condition(&mut self, depth: usize) -> String {
        let inputs: Vec<_> = (0..self.scope.fields.len())
            .filter(|field| self.scope.fields[*field].1 == Intent::In)
            .collect();
        let (leaf, ty) = match inputs.first() {
            Some(field) => (self.read(*field), self.scope.fields[*field].2),
            None if !self.scope.scalars.is_empty() => {
                let (name, ty) = self.scope.scalars[0].clone();
                (name, ty)
            }
            None => return format!("«index(0)¦ctx.index[0]» < {}‹_i64›", self.random.i64(0..4)),
        };
        let other = self.typed(true, |generator| generator.expression(ty, depth));
        let op =
            if ty == Type::Bool { "!=" } else { self.pick(&["<", "<=", ">", ">=", "==", "!="]) };
        let condition = format!("({leaf}) {op} ({other})");
        if self.chance(30) {
            let other = self.expression(Type::Bool, depth);
            let op = self.pick(&["&&", "||"]);
            return format!("({condition}) {op} ({other})");
        }
        condition
    }

    fn literal(&mut self, ty: Type) -> String {
        let literal = match ty {
            Type::Bool => return self.random.bool().to_string(),
            Type::F64 if self.chance(20) => {
                self.pick(&["1e300", "5e-324", "9007199254740993.0", "-1.5e-310"])
            }
            Type::F32 | Type::F64 => self.pick(&FLOATS),
            Type::I32 => self.pick(&["0", "1", "-1", "2147483647", "-2147483648", "7", "-65536"]),
            Type::I64 => self.pick(&[
                "0",
                "1",
                "-1",
                "9223372036854775807",
                "-9223372036854775808",
                "12",
                "-4294967297",
            ]),
            Type::U32 => self.pick(&["0", "1", "4294967295", "2147483648", "9"]),
        };
        if self.is_typed { format!("({literal}‹_{ty}›)") } else { format!("({literal}_{ty})") }
    }

    /// A place that the translator knows, and the values that it takes in the turns of the loops around it.
    fn known(&mut self) -> (String, Vec<(Vec<i64>, i64)>) {
        let turns = self.turns();
        let constant = self.random.i64(-2..3);
        let loops = self.scope.loops.clone();
        if loops.is_empty() || self.chance(50) {
            return (
                constant.to_string(),
                turns.into_iter().map(|turn| (turn, constant)).collect(),
            );
        }
        let which = self.random.usize(..loops.len());
        let name = &loops[which].0;
        let tables: Vec<_> =
            self.scope.tables.iter().filter(|table| table.1 == Type::I64).cloned().collect();
        if let Some((table, _, values)) = tables.first()
            && (loops[which].1 >= 0 && loops[which].2 <= 2)
        {
            let text = format!("{table}[«{name}¦{name} as usize»] - {constant}");
            let value = |turn: &Vec<i64>| values[usize::try_from(turn[which]).unwrap()] - constant;
            return (text, turns.into_iter().map(|turn| (turn.clone(), value(&turn))).collect());
        }
        let by = self.random.i64(-2..3);
        let text = format!("{by} * {name} + {constant}");
        (text, turns.into_iter().map(|turn| (turn.clone(), by * turn[which] + constant)).collect())
    }

    /// The values of the loop variables in all turns.
    fn turns(&self) -> Vec<Vec<i64>> {
        let mut turns = vec![Vec::new()];
        for (_, from, to) in &self.scope.loops {
            let longer = |turn: Vec<i64>| {
                (*from..=*to)
                    .map(move |value| turn.iter().copied().chain([value]).collect::<Vec<_>>())
            };
            turns = turns.into_iter().flat_map(longer).collect();
        }
        turns
    }

    /// An offset, and all that it may be.
    fn offset(&mut self) -> (String, Offsets) {
        let mut texts = Vec::new();
        let mut offsets: Vec<Vec<i64>> = vec![Vec::new(); self.turns().len()];
        for _ in 0..self.rank {
            let (text, values) = self.known();
            texts.push(text);
            for (offset, (_, value)) in offsets.iter_mut().zip(values) {
                offset.push(value);
            }
        }
        (texts.join(", "), offsets.into_iter().collect())
    }

    fn read(&mut self, field: usize) -> String {
        let (name, intent, _) = self.scope.fields[field].clone();
        if intent.is_output()
            && let Some(previous) = self.scope.previous.clone()
            && (intent == Intent::Out || self.chance(60))
        {
            return format!("{name}.«at({previous})¦previous([{previous}])»");
        }
        if intent == Intent::InOut {
            self.scope.reads[field].insert(vec![0; self.rank]);
            return format!("{name}.at({})", vec!["0"; self.rank].join(", "));
        }
        let (text, offsets) = self.offset();
        self.scope.reads[field].extend(offsets);
        format!("{name}.at({text})")
    }

    fn call(&mut self, helper: usize, depth: usize) -> String {
        let before = self.scope.reads.clone();
        self.call_if_possible(helper, depth).unwrap_or_else(|| {
            self.scope.reads = before;
            self.leaf(self.helpers[helper].returns)
        })
    }

    fn call_if_possible(&mut self, helper: usize, depth: usize) -> Option<String> {
        let Helper { name, fields, scalars, reads, .. } = &self.helpers[helper];
        let (name, fields, scalars, reads) =
            (name.clone(), fields.clone(), scalars.clone(), reads.clone());
        let mut arguments = Vec::new();
        for (ty, reads) in fields.iter().zip(&reads) {
            let known = self
                .scope
                .fields
                .iter()
                .position(|field| field.1 == Intent::In && field.2 == *ty)?;
            let name = self.scope.fields[known].0.clone();
            let (text, shifts) = if self.chance(60) {
                let (text, shifts) = self.offset();
                (format!("{name}.shift({text})"), shifts)
            } else {
                (name, BTreeSet::from([vec![0; self.rank]]))
            };
            arguments.push(text);
            for shift in shifts {
                let moved =
                    reads.iter().map(|read| read.iter().zip(&shift).map(|(a, b)| a + b).collect());
                let moved: Vec<Vec<i64>> = moved.collect();
                self.scope.reads[known].extend(moved);
            }
        }
        for ty in scalars {
            let value = self.typed(true, |generator| generator.expression(ty, depth.min(2) - 1));
            arguments.push(value);
        }
        Some(format!("{name}(«¦ctx, »{})", arguments.join(", ")))
    }

    fn expression(&mut self, ty: Type, depth: usize) -> String {
        self.budget = self.budget.saturating_sub(1);
        if depth == 0 || self.budget == 0 {
            return self.leaf(ty);
        }
        let less = depth - 1;
        match self.random.u8(..12) {
            0 | 1 => self.leaf(ty),
            2 => {
                let condition = self.condition(less);
                if self.scope.value_blocks < 2 && self.chance(40) {
                    let visible = self.scope.variables.len();
                    self.scope.value_blocks += 1;
                    let declarations: String =
                        (0..self.random.usize(1..3)).map(|_| self.declaration()).collect();
                    let change = self.assignment().unwrap_or_default();
                    let value = self.expression(ty, less);
                    self.scope.value_blocks -= 1;
                    self.scope.variables.truncate(visible);
                    let otherwise = self.expression(ty, less);
                    return format!(
                        "(if {condition} {{\n{declarations}{change}{value} }} else {{ {otherwise} }})"
                    );
                }
                let (a, b) = (self.expression(ty, less), self.expression(ty, less));
                format!("(if {condition} {{ {a} }} else {{ {b} }})")
            }
            3 => {
                let of_type: Vec<_> =
                    (0..self.helpers.len()).filter(|h| self.helpers[*h].returns == ty).collect();
                match of_type.first() {
                    Some(helper) => self.call(*helper, depth),
                    None => self.leaf(ty),
                }
            }
            4 if ty != Type::Bool => {
                let from = if ty.is_float() { self.number_type() } else { self.pick(&Type::ALL) };
                let value = self.typed(false, |generator| generator.expression(from, less));
                format!("(({value}) as {ty})")
            }
            _ => match ty {
                Type::F32 | Type::F64 => self.float(ty, less),
                Type::Bool => self.logic(less),
                _ => self.integer(ty, less),
            },
        }
    }

    fn leaf(&mut self, ty: Type) -> String {
        let mut leaves: Vec<String> = Vec::new();
        for field in 0..self.scope.fields.len() {
            let is_read =
                self.scope.fields[field].1 != Intent::Out || self.scope.previous.is_some();
            if self.scope.fields[field].2 == ty && is_read {
                // What is not chosen is not read.
                let before = self.scope.reads.clone();
                let read = self.read(field);
                if self.chance(50) {
                    return read;
                }
                self.scope.reads = before;
            }
        }
        leaves.extend(
            self.scope
                .scalars
                .iter()
                .filter(|scalar| scalar.1 == ty)
                .map(|scalar| scalar.0.clone()),
        );
        leaves.extend(
            self.visible()
                .into_iter()
                .filter(|variable| variable.1 == ty)
                .map(|variable| variable.0),
        );
        let loops: Vec<_> = self.scope.loops.clone();
        for (table, element, _) in &self.scope.tables {
            let index = self.random.usize(..3);
            if *element == ty {
                leaves.push(format!("{table}[{index}]"));
                for (name, from, to) in &loops {
                    if *from >= 0 && *to <= 2 {
                        leaves.push(format!("{table}[«{name}¦{name} as usize»]"));
                    }
                }
            }
        }
        for (name, from, _) in &loops {
            if self.is_typed && ty.is_integer() && (*from >= 0 || ty != Type::U32) {
                leaves.push(format!("«{name}¦({name} as {ty})»"));
            }
        }
        if ty == Type::I64 {
            let axis = self.random.usize(..self.rank);
            leaves.push(format!("«index({axis})¦ctx.index[{axis}]»"));
            leaves.push(format!("«extent({axis})¦ctx.extent[{axis}]»"));
        }
        let chosen = self.random.usize(..leaves.len() + 1);
        leaves.get(chosen).cloned().unwrap_or_else(|| self.literal(ty))
    }

    fn float(&mut self, ty: Type, depth: usize) -> String {
        let a = self.expression(ty, depth);
        match self.random.u8(..14) {
            0 => format!("(-({a}))"),
            1 => format!("({a}).sqrt()"),
            2 => format!("({a}).abs()"),
            3 => format!("({a}).floor()"),
            4 => format!("({a}).ceil()"),
            5 => {
                let (b, c) = (self.expression(ty, depth), self.expression(ty, depth));
                format!("({a}).mul_add({b}, {c})")
            }
            6 | 7 => self.extreme(&a, ty, depth),
            _ => {
                let (b, op) = (self.expression(ty, depth), self.pick(&["+", "-", "*", "/"]));
                format!("({a} {op} {b})")
            }
        }
    }

    fn extreme(&mut self, a: &str, ty: Type, depth: usize) -> String {
        let b = self.expression(ty, depth);
        let method = if self.random.bool() { "«min¦minimum»" } else { "«max¦maximum»" };
        format!("({a}).{method}({b})")
    }

    fn integer(&mut self, ty: Type, depth: usize) -> String {
        let a = self.expression(ty, depth);
        match self.random.u8(..14) {
            0 if ty != Type::U32 => format!("(-({a}))"),
            1 if ty != Type::U32 => format!("({a}).«abs¦wrapping_abs»()"),
            2 => format!("(!({a}))"),
            3 | 4 => self.extreme(&a, ty, depth),
            5 | 6 => {
                let divisor = match ty {
                    Type::U32 => self.pick(&["1", "3", "4294967295"]),
                    _ => self.pick(&["1", "-1", "7", "-3", "2147483647"]),
                };
                // The translator knows that the remainder of -1 is 0, and drops what it is of.
                let method = if divisor == "-1" || self.random.bool() {
                    "«/¦.wrapping_div(»"
                } else {
                    "«%¦.wrapping_rem(»"
                };
                format!("(({a}) {method} {divisor}‹_{ty}›«¦)»)")
            }
            _ => {
                let (b, op) =
                    (self.expression(ty, depth), self.pick(&["+", "-", "*", "&", "|", "^"]));
                format!("(({a}) {op} ({b}))")
            }
        }
    }

    fn logic(&mut self, depth: usize) -> String {
        match self.random.u8(..8) {
            0 => format!("(!({}))", self.expression(Type::Bool, depth)),
            1 | 2 => {
                let op = self.pick(&["&&", "||", "&", "|", "^", "==", "!="]);
                format!(
                    "(({}) {op} ({}))",
                    self.expression(Type::Bool, depth),
                    self.expression(Type::Bool, depth)
                )
            }
            _ => {
                let ty = self.number_type();
                let op = self.pick(&["<", "<=", ">", ">=", "==", "!="]);
                let both = |generator: &mut Self| [0, 1].map(|_| generator.expression(ty, depth));
                let [a, b] = self.typed(false, both);
                format!("(({a}) {op} ({b}))")
            }
        }
    }
}
