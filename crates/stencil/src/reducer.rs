//! The kernels that accumulate the values of a reduction on a device, and the memory that they use.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

use std::any::Any;
use std::fmt::Write as _;
use std::ops::Range;

use array_buffer::{ArrayBuffer, ReadGuard};
use bytemuck::{Pod, Zeroable, bytes_of};
use ndarray::{Ix1, IxDyn};
use runtime_core::{
    Arg, DType, Device, DeviceKind, Grid as HostGrid, HostModule, ImageFormat, Kernel, Launch,
    ModuleBundle, ModuleImage, Plain, Result, Stream,
};

use crate::accumulate::{Accumulator, CARRY_AFTER, Fold, INFINITE, LARGE, NAN, Op, Value, WORDS};
use crate::shape::Shape;

/// The accumulators that the host gets at most.
const RESULTS: usize = 1024;

/// The accumulators that a device with many cores makes of values at most; from these it makes those for the host.
const MANY: usize = 1 << 16;

/// Accumulators on a device and on the host.
type Accumulators = ArrayBuffer<i64, Ix1>;

/// The kernels that a grid has loaded, and memory that was used before and is free.
#[derive(Default)]
pub(crate) struct Reducer {
    kernels: Vec<(Fold, [Kernel; 2])>,
    free: Vec<Box<dyn Any + Send>>,
}

/// The values of a field without ghosts, at a location.
pub(crate) struct Scratch<T: Value> {
    pub(crate) staggered: [bool; 3],
    pub(crate) array: ArrayBuffer<T, IxDyn>,
}

/// Many accumulators, which only the device uses.
struct Partials(Accumulators);

/// The accumulators that the host gets.
pub(crate) struct Results {
    /// Those that were written come first.
    pub(crate) accumulators: Accumulators,
    /// How many were written.
    pub(crate) count: usize,
    /// Whether the device copies them to the host by itself.
    is_page_locked: bool,
}

impl Reducer {
    /// Takes free memory of a type, of which `fits` is true.
    pub(crate) fn take<M: Any>(&mut self, fits: impl Fn(&M) -> bool) -> Option<M> {
        let is_wanted = |free: &Box<dyn Any + Send>| free.downcast_ref().is_some_and(&fits);
        let place = self.free.iter().position(is_wanted)?;
        self.free.swap_remove(place).downcast().ok().map(|memory| *memory)
    }

    /// Keeps memory that is free.
    pub(crate) fn keep<M: Any + Send>(&mut self, memory: M) {
        self.free.push(Box::new(memory));
    }

    /// Enqueues the accumulation of the values at `points`, which count from the first value that the rank has. What it
    /// returns is on its way to the host, and is to be [kept](Self::keep) after it was read.
    pub(crate) fn accumulate<T: Value>(
        &mut self,
        op: Op,
        stream: &Stream,
        values: &ReadGuard<'_, T, IxDyn>,
        shape: &Shape,
        at: &Place,
    ) -> Result<Results> {
        let fold = Fold { op, dtype: T::DTYPE };
        let device = stream.device();
        let [accumulate, combine] = self.kernels::<T>(device, fold)?;
        let values_args = at.args(shape, device);
        let items = values_args.items();
        let mut results = match self.take(|_: &Results| true) {
            Some(results) => results,
            None => {
                let mut accumulators = ArrayBuffer::uninit([RESULTS * WORDS])?;
                let is_page_locked = device.info().kind != DeviceKind::Host
                    && accumulators.page_lock(device).is_ok();
                Results { accumulators, count: 0, is_page_locked }
            }
        };
        results.count = items.min(RESULTS);
        let launch = |kernel: &Kernel, items: usize, args: [Arg<'_>; 3]| {
            let geometry = Launch::cover(items, device.info().limits.max_block_threads.min(64));
            // SAFETY: the kernels take these arguments. They read the values of the box, or accumulators that were
            // written, and write as many accumulators as there are items, for which there is memory.
            unsafe { kernel.launch(stream, &geometry, &args) }
        };
        // SAFETY: the box is within the values that the guard has.
        let values = unsafe { values.span()? };
        if items <= RESULTS {
            let mut guard = results.accumulators.write(stream)?;
            let args =
                [values.into(), guard.view_mut()?.into(), Arg::bytes(bytes_of(&values_args))];
            launch(&accumulate, items, args)?;
            guard.commit()?;
        } else {
            let mut partials = match self.take(|_: &Partials| true) {
                Some(Partials(partials)) => partials,
                None => ArrayBuffer::uninit([MANY * WORDS])?,
            };
            let mut guard = partials.write(stream)?;
            let args =
                [values.into(), guard.view_mut()?.into(), Arg::bytes(bytes_of(&values_args))];
            launch(&accumulate, items, args)?;
            guard.commit()?;
            {
                let from = partials.read(stream)?;
                let mut guard = results.accumulators.write(stream)?;
                let counts = [items as i64, RESULTS as i64];
                let args =
                    [from.view()?.into(), guard.view_mut()?.into(), Arg::bytes(bytes_of(&counts))];
                launch(&combine, RESULTS, args)?;
                guard.commit()?;
            }
            self.keep(Partials(partials));
        }
        if results.is_page_locked {
            // What cannot be copied now is copied, or reported, when it is read.
            drop(results.accumulators.prefetch_host());
        }
        Ok(results)
    }

    fn kernels<T: Value>(&mut self, device: &Device, fold: Fold) -> Result<[Kernel; 2]> {
        if let Some((_, kernels)) = self.kernels.iter().find(|(known, _)| *known == fold) {
            return Ok(kernels.clone());
        }
        let functions = functions::<T>(fold);
        let mut bundle = ModuleBundle::new().with(ModuleImage::functions(&functions));
        let texts = Dialect::ALL.map(|dialect| (dialect.format, text(fold, dialect)));
        for (format, text) in &texts {
            bundle = bundle.with(ModuleImage::source(*format, text));
        }
        let module = device.module_load_bundle(&bundle)?;
        let kernels = [module.kernel("accumulate")?, module.kernel("combine")?];
        self.kernels.push((fold, kernels.clone()));
        Ok(kernels)
    }
}

/// A box of values, and its place in the grid.
pub(crate) struct Place {
    /// The points, counted from the rank's first point.
    pub(crate) local: [Range<usize>; 3],
    /// The index in the grid of the rank's first point.
    pub(crate) first: [usize; 3],
    /// The tile of the rank, which is 0 unless there are two axes.
    pub(crate) tile: usize,
    /// The points of all ranks, or of one tile.
    pub(crate) points: [usize; 3],
}

/// The struct of arguments of a kernel. Axes that the grid lacks come first, with one point.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    at: i64,
    strides: [i64; 3],
    extents: [i64; 3],
    first: [i64; 3],
    points: [i64; 3],
    /// Along the last axis, so many work-items take the points in turns.
    lanes: i64,
    /// So many work-items take the rows in turns.
    groups: i64,
}

impl Args {
    fn items(&self) -> usize {
        usize::try_from(self.lanes * self.groups).unwrap_or(0)
    }
}

impl Place {
    /// The number of a point, as marks have it, from its index.
    fn args(&self, shape: &Shape, device: &Device) -> Args {
        let rank = shape.rank;
        let last = |values: [usize; 3], rest: usize| -> [i64; 3] {
            std::array::from_fn(|place| {
                (place + rank).checked_sub(3).map_or(rest, |axis| values[axis]) as i64
            })
        };
        let local = &self.local;
        let extents: [usize; 3] = std::array::from_fn(|axis| local[axis].len());
        let at: usize = (0..rank).map(|axis| local[axis].start * shape.strides[axis]).sum();
        let length = extents[rank - 1].max(1);
        let rows = extents[..rank - 1].iter().product::<usize>().max(1);
        // A core is quick with few long rows, a device with many cores with neighbouring points at once.
        let (most, wide) = match device.info().kind {
            DeviceKind::Gpu | DeviceKind::Accelerator | DeviceKind::Simulated => (MANY, 256),
            DeviceKind::Cpu => (4 * RESULTS, 1),
            _ => (RESULTS, 1),
        };
        let lanes = length.min(wide.max(most / rows)).max(1);
        let groups = rows.min((most / lanes).max(1));
        Args {
            at: at as i64,
            strides: last(shape.strides, 0),
            extents: last(extents, 1),
            first: last(
                std::array::from_fn(|axis| self.first[axis] + local[axis].start),
                self.tile,
            ),
            points: last(self.points, 1),
            lanes: lanes as i64,
            groups: groups as i64,
        }
    }
}

/// The kernels as Rust functions. A work-item of many takes neighbouring points here.
fn functions<T: Value>(fold: Fold) -> HostModule {
    let words = fold.words();
    let store = move |to: &mut [i64], from: &Accumulator| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    };
    let accumulate =
        move |grid: &HostGrid<'_>, values: &[T], results: &mut [i64], Plain(args): Plain<Args>| {
            let size = |n: i64| usize::try_from(n).unwrap_or(0);
            let (lanes, groups) = (size(args.lanes).max(1), size(args.groups).max(1));
            let rows = size(args.extents[0] * args.extents[1]);
            let length = size(args.extents[2]);
            let part = |n: usize, of: usize, all: usize| n * all / of..(n + 1) * all / of;
            let used = (lanes * groups * words).min(results.len());
            grid.chunks_mut(&mut results[..used], words, |item, result| {
                let mut sum = fold.identity();
                let columns = part(item % lanes, lanes, length);
                for row in part(item / lanes, groups, rows) {
                    let (i, j) = (row as i64 / args.extents[1], row as i64 % args.extents[1]);
                    let at = size(args.at + i * args.strides[0] + j * args.strides[1]);
                    let point = (args.first[0] + i) * args.points[1] + args.first[1] + j;
                    let point = point * args.points[2] + args.first[2] + columns.start as i64;
                    let values = values.get(at + columns.start..at + columns.end);
                    crate::accumulate::accumulate(fold.op, &mut sum, values.unwrap_or(&[]), point);
                }
                store(result, &sum);
            });
        };
    let combine = move |grid: &HostGrid<'_>,
                        items: &[i64],
                        results: &mut [i64],
                        Plain(counts): Plain<[i64; 2]>| {
        let [count, to] = counts.map(|n| usize::try_from(n).unwrap_or(0));
        let (items, used) = (items.chunks(words).take(count), (to * words).min(results.len()));
        grid.chunks_mut(&mut results[..used], words, |result, to_word| {
            let mut sum = fold.identity();
            items
                .clone()
                .skip(result)
                .step_by(to.max(1))
                .for_each(|item| fold.combine(&mut sum, item));
            fold.carry(&mut sum);
            store(to_word, &sum);
        });
    };
    HostModule::new().with("accumulate", accumulate).with("combine", combine)
}

/// What differs between kinds of C.
#[derive(Clone, Copy)]
struct Dialect {
    format: ImageFormat,
    long: &'static str,
    kernel: &'static str,
    memory: &'static str,
    item: &'static str,
}

impl Dialect {
    const OPENCL: Self = Self {
        format: ImageFormat::OpenClC,
        long: "long",
        kernel: "__kernel void",
        memory: "__global ",
        item: "(i64)get_global_id(0)",
    };
    const CUDA: Self = Self {
        format: ImageFormat::CudaC,
        long: "long long",
        kernel: "extern \"C\" __global__ void",
        memory: "",
        item: "(i64)blockIdx.x * blockDim.x + threadIdx.x",
    };
    const HIP: Self = Self { format: ImageFormat::HipC, ..Self::CUDA };
    const ALL: [Self; 3] = [Self::OPENCL, Self::CUDA, Self::HIP];
}

/// The kernels in C. They compute with integers alone.
fn text(fold: Fold, dialect: Dialect) -> String {
    let Dialect { long, kernel, memory, item, .. } = dialect;
    let digits = fold.digits();
    let words = fold.words();
    let identity = fold.identity();
    // Of floats, the bits are accumulated.
    let (value, word) = match fold.dtype {
        DType::F64 => ("double", "u64"),
        DType::F32 => ("float", "unsigned int"),
        DType::I64 => (long, "i64"),
        DType::I32 => ("int", "int"),
        _ => ("unsigned int", "unsigned int"),
    };
    let is_opencl = dialect.format == ImageFormat::OpenClC;
    let prologue = if is_opencl && fold.dtype == DType::F64 {
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    } else {
        ""
    };
    let least = |word: i64| match word {
        i64::MIN => "(-MOST - 1)".to_owned(),
        i64::MAX => "MOST".to_owned(),
        word => word.to_string(),
    };
    let (mut declare, mut load, mut store, mut carry) =
        (String::new(), String::new(), String::new(), String::new());
    // Writing to a string cannot fail.
    for (word, identity) in identity[..words].iter().enumerate() {
        let name = if word == digits { "mark".to_owned() } else { format!("w{word}") };
        let identity = least(*identity);
        let _ = writeln!(declare, "    i64 {name} = {identity};");
        let _ = writeln!(store, "    to[{word}] = {name};");
        let add = match fold.op {
            _ if word == digits => "MIN(mark, from[item * WORDS + WORDS - 1])".to_owned(),
            Op::Sum => format!("{name} + from[item * WORDS + {word}]"),
            Op::Min => format!("MIN({name}, from[item * WORDS + {word}])"),
            Op::Max => format!("MAX({name}, from[item * WORDS + {word}])"),
        };
        let _ = writeln!(load, "        {name} = {add};");
    }
    if fold.op == Op::Sum {
        let bits = fold.bits();
        for word in 1..digits {
            let before = word - 1;
            let _ = writeln!(
                carry,
                "w{word} += w{before} >> {bits}; w{before} &= ((i64)1 << {bits}) - 1;"
            );
        }
    }
    let add = add(fold);
    format!(
        "{prologue}typedef {long} i64;
typedef unsigned {long} u64;
#define MOST ((i64)0x7fffffffffffffff)
#define WORDS {words}
#define TURN {CARRY_AFTER}
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

struct accumulate_args {{
    i64 at, strides[3], extents[3], first[3], points[3], lanes, groups;
}};

{kernel} accumulate({memory}const {value} *values, {memory}i64 *results, const struct accumulate_args args)
{{
    const i64 item = {item};
    if (item >= args.lanes * args.groups)
        return;
    const i64 lane = item % args.lanes, group = item / args.lanes;
{declare}    const i64 rows = args.extents[0] * args.extents[1];
    for (i64 row = group; row < rows; row += args.groups) {{
        const i64 i = row / args.extents[1], j = row % args.extents[1];
        {memory}const {word} *line = ({memory}const {word} *)values + args.at + i * args.strides[0] + j * args.strides[1];
        const i64 point = ((args.first[0] + i) * args.points[1] + args.first[1] + j) * args.points[2] + args.first[2];
        for (i64 start = lane; start < args.extents[2]; start += TURN * args.lanes) {{
            const i64 end = MIN(start + TURN * args.lanes, args.extents[2]);
            for (i64 k = start; k < end; k += args.lanes) {{
{add}            }}
            {carry}
        }}
    }}
    {memory}i64 *to = results + item * WORDS;
{store}}}

struct combine_args {{
    i64 items, results;
}};

{kernel} combine({memory}const i64 *from, {memory}i64 *results, const struct combine_args args)
{{
    const i64 result = {item};
    if (result >= args.results)
        return;
{declare}    for (i64 item = result; item < args.items; item += args.results) {{
{load}    }}
    {carry}
    {memory}i64 *to = results + result * WORDS;
{store}}}
"
    )
}

/// The statements that accumulate `line[k]`, the value of point `point + k`.
fn add(fold: Fold) -> String {
    let mut text = String::new();
    let mut line = |text_line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "                {text_line}");
    };
    match (fold.format(), fold.op) {
        (Some(format), Op::Sum) => {
            let (fraction, greatest, limit) = (format.fraction, format.greatest, format.limit);
            let sign = fraction + 64 - greatest.leading_zeros();
            line("const u64 bits = line[k];".into());
            line(format!("const u64 fraction = bits & (((u64)1 << {fraction}) - 1);"));
            line(format!("const int exponent = (int)(bits >> {fraction}) & {greatest};"));
            line(format!("if (exponent >= {limit}) {{"));
            line(format!(
                "    const i64 found = (point + k) << 2 | (exponent < {greatest} ? {LARGE} : fraction == 0 ? {INFINITE} : {NAN});"
            ));
            line("    mark = MIN(mark, found);".into());
            line("    continue;".into());
            line("}".into());
            line(format!("u64 digits = fraction | (u64)(exponent > 0) << {fraction};"));
            line(format!("int shift = MAX(exponent, 1) - {};", format.unit));
            line("if (shift < 0) {".into());
            line("    digits = shift > -64 ? digits >> -shift : 0;".into());
            line("    shift = 0;".into());
            line("}".into());
            line("const int place = shift / 46, by = shift % 46;".into());
            line("const u64 mask = ((u64)1 << 46) - 1;".into());
            line(format!("const i64 sign = bits >> {sign} ? -1 : 0;"));
            for (name, part) in [
                ("low", "(digits << by) & mask"),
                ("middle", "(digits >> (46 - by)) & mask"),
                ("high", "(digits >> (46 - by)) >> 46"),
            ] {
                line(format!("const i64 {name} = ((i64)({part}) ^ sign) - sign;"));
            }
            for word in 0..fold.digits() {
                line(format!(
                    "w{word} += place == {word} ? low : place + 1 == {word} ? middle : place + 2 == {word} ? high : 0;"
                ));
            }
        }
        (None, Op::Sum) => {
            line("const i64 value = line[k];".into());
            line("w0 += value & 0xffffffff;".into());
            line("w1 += value >> 32;".into());
        }
        (format, op) => {
            let choose = if op == Op::Min { "MIN" } else { "MAX" };
            if let Some(format) = format {
                let (most, narrow) =
                    if format.fraction > 31 { ("MOST", "i64") } else { ("0x7fffffff", "int") };
                let infinity = format!("((u64){} << {})", format.greatest, format.fraction);
                line("const u64 bits = line[k];".into());
                line(format!("if ((bits & {most}) > {infinity}) {{"));
                line(format!("    mark = MIN(mark, (point + k) << 2 | {NAN});"));
                line("    continue;".into());
                line("}".into());
                line(format!("i64 value = ({narrow})bits;"));
                line(format!("value = value < 0 ? value ^ {most} : value;"));
            } else {
                line("const i64 value = line[k];".into());
            }
            line(format!("w0 = {choose}(w0, value);"));
        }
    }
    text
}
