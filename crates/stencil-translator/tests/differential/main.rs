//! Random stencils, and the values of random reductions: the interpreter, C, the Rust function over rows, and the same
//! program as plain Rust give the same bits. `STENCIL_FUZZ_SEED` chooses the first program, and `STENCIL_FUZZ_PROGRAMS`
//! their number.
#![cfg(test)]

mod cuda;
mod engines;
mod generate;
mod hand_written;
mod hip;
mod opencl;

use std::env;
use std::io::{Write as _, stderr};
use std::iter;

use engines::{Build, Engine, Single, Whole};
use fastrand::Rng;
use generate::Program;
use opencl::OpenCl;
use stencil_translator::{Column, Direction, Intent, Point, Stencil, Type, Value};

/// The programs of a run. They are compiled together.
const PROGRAMS: u64 = 200;

/// Programs on an OpenCL device, which may compile each kernel again when it is enqueued.
const OPENCL_PROGRAMS: u64 = 30;

/// A field in memory: the box, and around it as many elements as the footprint has.
#[derive(Clone)]
struct Memory {
    ty: Type,
    words: Vec<u64>,
    /// By elements, of three axes.
    strides: [i64; 3],
    first: i64,
}

impl Memory {
    fn new(ty: Type, extents: [i64; 3], sides: [(i64, i64); 3], random: &mut Rng) -> Self {
        let mut padded = [0; 3];
        for axis in 0..3 {
            padded[axis] = extents[axis] + sides[axis].1.max(0) - sides[axis].0.min(0);
        }
        let row = padded[2] + random.i64(0..3);
        let strides = [padded[1] * row, row, 1];
        let first = (0..3).map(|axis| -sides[axis].0.min(0) * strides[axis]).sum();
        let mut memory = Self { ty, words: Vec::new(), strides, first };
        let elements = usize::try_from(padded[0] * strides[0]).unwrap();
        memory.words = vec![0; elements];
        for element in 0..elements {
            memory.put(element, value(ty, random));
        }
        memory
    }

    fn pointer(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }

    fn element(&self, point: [i64; 3], offset: &[i64]) -> usize {
        let offset =
            |axis: usize| (axis + offset.len()).checked_sub(3).map_or(0, |axis| offset[axis]);
        let places = (0..3).map(|axis| (point[axis] + offset(axis)) * self.strides[axis]);
        let place = self.first + places.sum::<i64>();
        usize::try_from(place).unwrap()
    }

    fn get(&self, element: usize) -> Value {
        let bytes: &[u8] = bytes(&self.words);
        let size = self.ty.size();
        from_bytes(self.ty, &bytes[element * size..][..size])
    }

    fn put(&mut self, element: usize, value: Value) {
        let size = self.ty.size();
        let bits = bits(value).to_le_bytes();
        for (place, byte) in bits[..size].iter().enumerate() {
            let at = element * size + place;
            let shift = 8 * (at % 8);
            self.words[at / 8] = self.words[at / 8] & !(0xff << shift) | u64::from(*byte) << shift;
        }
    }
}

fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: bytes have no alignment, and the words have this many.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 8 * words.len()) }
}

fn from_bytes(ty: Type, bytes: &[u8]) -> Value {
    match ty {
        Type::F32 => Value::F32(f32::from_le_bytes(bytes.try_into().unwrap())),
        Type::F64 => Value::F64(f64::from_le_bytes(bytes.try_into().unwrap())),
        Type::I32 => Value::I32(i32::from_le_bytes(bytes.try_into().unwrap())),
        Type::I64 => Value::I64(i64::from_le_bytes(bytes.try_into().unwrap())),
        Type::U32 => Value::U32(u32::from_le_bytes(bytes.try_into().unwrap())),
        Type::Bool => Value::Bool(bytes[0] != 0),
    }
}

fn bits(value: Value) -> u64 {
    match value {
        Value::F32(value) => value.to_bits().into(),
        Value::F64(value) => value.to_bits(),
        Value::I32(value) => value.cast_unsigned().into(),
        Value::I64(value) => value.cast_unsigned(),
        Value::U32(value) => value.into(),
        Value::Bool(value) => value.into(),
    }
}

/// A value, often one at which something ends.
fn value(ty: Type, random: &mut Rng) -> Value {
    let special = random.bool();
    let choose = |of: &[f64], random: &mut Rng| of[random.usize(..of.len())];
    let floats = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -1.5,
        2.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        2_147_483_647.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        -2_147_483_649.0,
        4_294_967_295.0,
        4_294_967_296.0,
        9_223_372_036_854_775_808.0,
        -9_223_372_036_854_775_808.0,
        1e-40,
        f64::MIN_POSITIVE,
        5e-324,
        1e38,
        f64::MAX,
    ];
    match ty {
        #[expect(clippy::cast_possible_truncation, reason = "the nearest of the type")]
        Type::F32 if special => Value::F32(choose(&floats, random) as f32),
        Type::F32 => Value::F32((random.f32() - 0.5) * 8.0),
        Type::F64 if special => Value::F64(choose(&floats, random)),
        Type::F64 if random.u8(..) < 20 => Value::F64(f64::from_bits(random.u64(..))),
        Type::F64 => Value::F64((random.f64() - 0.5) * 8.0),
        Type::I32 if special => Value::I32([0, 1, -1, i32::MIN, i32::MAX, 3][random.usize(..6)]),
        Type::I32 => Value::I32(random.i32(..)),
        Type::I64 if special => {
            Value::I64([0, 1, -1, i64::MIN, i64::MAX, 1 << 53, (1 << 53) + 1][random.usize(..7)])
        }
        Type::I64 => Value::I64(random.i64(..)),
        Type::U32 if special => Value::U32([0, 1, u32::MAX, 1 << 31, 3][random.usize(..5)]),
        Type::U32 => Value::U32(random.u32(..)),
        Type::Bool => Value::Bool(random.bool()),
    }
}

/// A stencil on memory.
struct Case<'a> {
    program: &'a Program,
    stencil: &'a Stencil,
    memories: Vec<Memory>,
    scalars: Vec<Value>,
    /// Of the box, with 1 for axes that are missing in front.
    extents: [i64; 3],
    first: [i64; 3],
    grid: [i64; 3],
}

impl<'a> Case<'a> {
    fn new(program: &'a Program, stencil: &'a Stencil, random: &mut Rng) -> Self {
        let missing = 3 - program.rank;
        let mut extents = [2, 3, 9];
        let (mut first, mut grid) = ([0; 3], [0; 3]);
        extents[..missing].fill(1);
        if let Some(column) = program.column {
            extents[missing + column.axis] = random.i64(1..=4);
        }
        for axis in missing..3 {
            first[axis] = random.i64(0..5);
            grid[axis] = first[axis] + extents[axis] + random.i64(0..5);
        }
        let memories = stencil.fields().iter().map(|field| {
            let mut sides = [(0, 0); 3];
            for (axis, side) in sides[missing..].iter_mut().enumerate() {
                *side = field.footprint().range(axis);
            }
            if let Some(column) =
                program.column.filter(|column| column.ghosts && field.intent().is_output())
            {
                let (low, high) = &mut sides[missing + column.axis];
                let previous = column.direction.previous();
                (*low, *high) = (previous.min(*low), previous.max(*high));
            }
            Memory::new(field.element(), extents, sides, random)
        });
        let memories = memories.collect();
        let scalars = program.scalars.iter().map(|ty| value(*ty, random)).collect();
        Self { program, stencil, memories, scalars, extents, first, grid }
    }

    /// The points, in an order in which columns may be computed.
    fn points(&self) -> Vec<[i64; 3]> {
        let [a, b, c] = self.extents;
        let points = (0..a).flat_map(|i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k])));
        let mut points: Vec<_> = points.collect();
        if self.program.column.is_some_and(|column| column.direction == Direction::Backward) {
            points.reverse();
        }
        points
    }

    /// Whether a point is the first, and the last, of a column.
    fn ends(&self, point: [i64; 3]) -> [bool; 2] {
        let Some(Column { direction, axis, .. }) = self.program.column else { return [false; 2] };
        let axis = 3 - self.program.rank + axis;
        let mut ends = [point[axis] == 0, point[axis] + 1 == self.extents[axis]];
        if direction == Direction::Backward {
            ends.reverse();
        }
        ends
    }

    fn index(&self, point: [i64; 3]) -> [i64; 3] {
        [0, 1, 2].map(|axis| self.first[axis] + point[axis])
    }

    /// The struct of arguments.
    fn arguments(&self) -> Vec<u64> {
        let missing = 3 - self.program.rank;
        let mut bytes: Vec<u8> = Vec::new();
        let mut put =
            |values: &[i64]| bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let mut small: Vec<u8> = Vec::new();
        for member in self.stencil.members() {
            match &*member.name {
                "extents" => put(&self.extents[missing..]),
                "first" => put(&self.first[missing..]),
                "grid" => put(&self.grid[missing..]),
                "pad" => small.extend([0; 4]),
                name => {
                    let (name, what) = name.rsplit_once('_').unwrap();
                    if what == "value" {
                        let scalar =
                            self.stencil.scalars().iter().position(|scalar| scalar.name() == name);
                        let bits = bits(self.scalars[scalar.unwrap()]).to_le_bytes();
                        small.extend(&bits[..member.ty.size()]);
                    } else {
                        let field = self
                            .stencil
                            .fields()
                            .iter()
                            .position(|field| field.name() == name)
                            .unwrap();
                        let memory = &self.memories[field];
                        match what {
                            "first" => put(&[memory.first]),
                            _ => put(&memory.strides[missing..2]),
                        }
                    }
                }
            }
        }
        bytes.extend(small);
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        words.collect()
    }

    fn interpret(&self) -> Vec<Memory> {
        let missing = 3 - self.program.rank;
        let mut results = self.memories.clone();
        for point in self.points() {
            let read = |field: usize, offset: &[i64]| {
                let is_previous = self.program.fields[field].0.is_output()
                    && offset.iter().any(|offset| *offset != 0);
                let memory = if is_previous { &results[field] } else { &self.memories[field] };
                memory.get(memory.element(point, offset))
            };
            let index = self.index(point);
            let point_of_stencil = Point {
                read: &read,
                scalars: &self.scalars,
                index: &index[missing..],
                extent: &self.grid[missing..],
                ends: self.ends(point),
            };
            let outputs = self.stencil.interpret(&point_of_stencil).expect("types agree");
            for (result, output) in results.iter_mut().zip(outputs) {
                if let Some(value) = output {
                    result.put(result.element(point, &[]), value);
                }
            }
        }
        results
    }

    fn run_whole(&self, engine: &Engine) -> Vec<Memory> {
        let mut results = self.memories.clone();
        let pointers: Vec<_> = results.iter_mut().map(Memory::pointer).collect();
        let function: Whole = engine.function(self.program);
        // A column across the rows has all its levels in one row.
        let along = self.program.column.map(|column| 3 - self.program.rank + column.axis);
        let outer = (0..2).filter(|axis| Some(*axis) != along);
        let rows: i64 = outer.map(|axis| self.extents[axis]).product();
        let rows = usize::try_from(rows).unwrap();
        // SAFETY: each memory has the box and its footprint, and the arguments are those of the stencil.
        unsafe { function(self.arguments().as_ptr().cast(), pointers.as_ptr(), rows) };
        results
    }

    fn run_single(&self, engine: &Engine) -> Vec<Memory> {
        let missing = 3 - self.program.rank;
        let (mut inputs, mut results) = (self.memories.clone(), self.memories.clone());
        let function: Single = engine.function(self.program);
        let scalars: Vec<_> = self.scalars.iter().map(|scalar| bits(*scalar)).collect();
        let strides: Vec<_> = self.memories.iter().map(|memory| memory.strides).collect();
        for point in self.points() {
            // Axes of the stencil come first.
            let shown = |values: [i64; 3]| {
                [0, 1, 2].map(|axis| values.get(missing + axis).copied().unwrap_or(0))
            };
            let ends = self.ends(point).map(i64::from);
            let context = [shown(self.index(point)), shown(self.grid), [ends[0], ends[1], 0]];
            let at = |memory: &mut Memory| {
                let element = memory.element(point, &[]);
                memory.pointer().wrapping_add(element * memory.ty.size())
            };
            let both = inputs.iter_mut().zip(&mut results);
            let pointers: Vec<_> = both.map(|(input, result)| [at(input), at(result)]).collect();
            // SAFETY: each memory has the point and its footprint.
            unsafe { function(&context, pointers.as_ptr(), strides.as_ptr(), scalars.as_ptr()) };
        }
        results
    }

    /// Panics if results differ, with all that is needed to find out why.
    fn compare(&self, expected: &[Memory], found: &[Memory], engine: &str) {
        let elements = |memory: &Memory| 8 * memory.words.len() / memory.ty.size();
        for (field, (expected, found)) in expected.iter().zip(found).enumerate() {
            for element in 0..elements(expected) {
                let (a, b) = (expected.get(element), found.get(element));
                assert!(
                    a.same_bits(b),
                    "{engine} gives {b:?} and the interpreter {a:?} for element {element} of t{field}, scalars {:?}, in\n{}\n{}",
                    self.scalars,
                    self.program.subset(),
                    self.stencil.source(stencil_translator::Dialect::C),
                );
            }
        }
    }
}

#[test]
fn all_outputs_of_random_stencils_have_the_same_bits() {
    if !engines::has_gcc() {
        drop(writeln!(stderr(), "skipped: no gcc"));
        return;
    }
    let number = |variable| env::var(variable).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("STENCIL_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    let count = number("STENCIL_FUZZ_PROGRAMS").unwrap_or(PROGRAMS);
    println!("STENCIL_FUZZ_SEED={seed} STENCIL_FUZZ_PROGRAMS={count}");
    for start in (0..count).step_by(400) {
        let seeds = (start..count.min(start + 400)).map(|offset| seed + offset);
        let batch: Vec<(Program, Stencil)> = seeds.map(translated).collect();
        let folder = tempfile::tempdir().unwrap();
        // They run at once.
        let builds =
            [engines::c, engines::rows, engines::plain].map(|start| start(folder.path(), &batch));
        let [c, rows, plain] = builds.map(Build::finish);
        for (program, stencil) in &batch {
            let mut random = Rng::with_seed(seed);
            for case in iter::repeat_with(|| Case::new(program, stencil, &mut random)).take(3) {
                let expected = case.interpret();
                case.compare(&expected, &case.run_whole(&c), c.name);
                case.compare(&expected, &case.run_whole(&rows), rows.name);
                case.compare(&expected, &case.run_single(&plain), plain.name);
            }
        }
    }
}

#[test]
fn zero_minus_an_integer_is_no_negation() {
    if !engines::has_gcc() {
        drop(writeln!(stderr(), "skipped: no gcc"));
        return;
    }
    let text = "fn f(o: Out<f64, 1>, t: In<i64, 1>) { o.set(0.0 - t.at(0) as f64); }";
    let program =
        generate::written("f", &[(Intent::Out, Type::F64), (Intent::In, Type::I64)], text);
    let batch = [(program, Stencil::parse(text.parse().unwrap()).unwrap())];
    let folder = tempfile::tempdir().unwrap();
    let builds = [engines::c, engines::rows].map(|start| start(folder.path(), &batch).finish());
    let mut case = Case::new(&batch[0].0, &batch[0].1, &mut Rng::with_seed(0));
    case.memories[1].words.fill(0);
    for engine in builds {
        case.compare(&case.interpret(), &case.run_whole(&engine), engine.name);
    }
}

#[test]
fn opencl_devices_give_the_same_bits() {
    let batch: Vec<(Program, Stencil)> = (0..OPENCL_PROGRAMS).map(translated).collect();
    let Some(device) = OpenCl::build(&batch) else {
        drop(writeln!(stderr(), "skipped: no OpenCL device with f64"));
        return;
    };
    let mut random = Rng::with_seed(1);
    for (program, stencil) in &batch {
        let case = Case::new(program, stencil, &mut random);
        case.compare(&case.interpret(), &device.run(&case), "OpenCL");
    }
}

fn translated(seed: u64) -> (Program, Stencil) {
    let program = generate::program(seed, format!("f{seed}"));
    let text = program.subset();
    let tokens = text.parse().unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let stencil = Stencil::parse(tokens).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert_eq!(stencil.reduction(), program.reduction, "{text}");
    for ((field, reads), (intent, _)) in
        stencil.fields().iter().zip(&program.reads).zip(&program.fields)
    {
        let footprint: generate::Offsets =
            field.footprint().offsets().map(<[i64]>::to_vec).collect();
        assert_eq!(footprint, *reads, "{} in\n{text}", field.name());
        assert!(*intent != Intent::Out || footprint.is_empty());
    }
    (program, stencil)
}
