//! What the examples share: the command line, ranks as threads, the comparison with a plain loop, and pictures.
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "each example uses what it needs")]

mod picture;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use ndarray::{ArrayD, ArrayView2, Dimension, Ix2, IxDyn};
use runtime::ErrorKind;
use runtime::halo::communicator::{Communicator, ThreadCommunicator};
use stencil::{Field, Number, Result};

pub(crate) use picture::Picture;
pub(crate) use runtime::Device;

/// A program of the gallery.
pub(crate) struct Example<T: Number, const N: usize> {
    pub(crate) name: &'static str,
    /// The size unless the command line says otherwise.
    pub(crate) size: Size<N>,
    pub(crate) run: Run<T, N>,
    /// The same fields by plain loops, of all ranks.
    pub(crate) plain: fn(Size<N>) -> Vec<ArrayD<T>>,
    pub(crate) picture: fn(&[ArrayD<T>]) -> Picture,
}

/// What each rank does, on its device. The fields are compared with those by plain loops.
pub(crate) type Run<T, const N: usize> = fn(Ranks, &Device, Size<N>) -> Result<Vec<Field<T, N>>>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size<const N: usize> {
    pub(crate) cells: [usize; N],
    pub(crate) steps: usize,
}

/// One of the ranks that share a grid.
pub(crate) type Ranks = Arc<dyn Communicator>;

/// Computes fields on several ranks, compares them with plain loops, and draws them.
#[derive(Parser)]
struct Options {
    /// The device: host, sim, opencl:0, cuda:0, hip:0
    #[arg(long, default_value = "host")]
    device: String,
    /// The number of ranks, which are threads
    #[arg(long, default_value_t = 1)]
    ranks: usize,
    /// The number of time steps
    #[arg(long)]
    steps: Option<usize>,
    /// The picture to write
    #[arg(long)]
    picture: Option<PathBuf>,
}

impl<T: Number + PartialEq + Into<f64>, const N: usize> Example<T, N> {
    /// Runs the example as the command line says.
    pub(crate) fn main(self) -> ExitCode {
        let name = self.name;
        match self.show(Options::parse()) {
            Ok(line) => {
                println!("{line}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{name}: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn show(mut self, options: Options) -> Result<String, Box<dyn Error>> {
        let Options { device, ranks, steps, picture } = options;
        let device = runtime::registry().open(&device)?;
        self.size.steps = steps.unwrap_or(self.size.steps);
        let fields = self.compare(&device, ranks)?;
        let path = picture.unwrap_or_else(|| format!("target/gallery/{}.png", self.name).into());
        (self.picture)(&fields).write(&path)?;
        let (name, on, Size { cells, steps }) = (self.name, device.id(), self.size);
        let path = path.display();
        Ok(format!(
            "{name}: {cells:?} cells, {steps} steps, {ranks} ranks on {on}: every bit is that of a plain loop; {path}"
        ))
    }

    /// Computes the fields on this many ranks. It is an error if one has other bits than by plain loops.
    pub(crate) fn compare(
        &self,
        device: &Device,
        ranks: usize,
    ) -> Result<Vec<ArrayD<T>>, Box<dyn Error>> {
        self.compare_over(device, ranks, |rank| Arc::new(rank))
    }

    /// As [`compare`](Self::compare), with another transport over the ranks.
    pub(crate) fn compare_over(
        &self,
        device: &Device,
        ranks: usize,
        transport: fn(ThreadCommunicator) -> Ranks,
    ) -> Result<Vec<ArrayD<T>>, Box<dyn Error>> {
        let size = self.size;
        let pieces = ThreadCommunicator::run(ranks, |rank| {
            let mut fields = (self.run)(transport(rank), device, size)?;
            fields.iter_mut().map(Piece::of).collect::<Result<Vec<_>>>()
        })?;
        // The rank whose error made the others fail.
        let cause = |rank: &Result<_>| match rank {
            Err(error) => error.kind() != ErrorKind::PeerLost,
            Ok(_) => false,
        };
        let pieces = match pieces.iter().position(cause) {
            Some(rank) => vec![pieces.into_iter().nth(rank).ok_or("no rank")??],
            None => pieces.into_iter().collect::<Result<_>>()?,
        };
        let fields = (self.plain)(size);
        let mut points = vec![0; fields.len()];
        for (rank, pieces) in pieces.iter().enumerate() {
            assert_eq!(pieces.len(), fields.len(), "fields of a rank, and by plain loops");
            for ((piece, field), points) in pieces.iter().zip(&fields).zip(&mut points) {
                *points += piece.compare(field).map_err(|error| format!("rank {rank}: {error}"))?;
            }
        }
        match fields.iter().zip(points).find(|(field, points)| field.len() > *points) {
            Some((field, points)) => Err(format!("{points} points of {}", field.len()).into()),
            None => Ok(fields),
        }
    }
}

/// The points of a field that one rank has.
struct Piece<T> {
    name: String,
    first: Vec<usize>,
    values: ArrayD<T>,
}

impl<T: Number + PartialEq + Into<f64>> Piece<T> {
    fn of<const N: usize>(field: &mut Field<T, N>) -> Result<Self> {
        let (name, first) = (field.name().to_owned(), field.first().to_vec());
        Ok(Self { name, first, values: field.read_host()?.to_owned() })
    }

    /// Compares all points with those of the whole field. Returns their number.
    fn compare(&self, whole: &ArrayD<T>) -> Result<usize, String> {
        for (at, value) in self.values.indexed_iter() {
            let at: Vec<usize> = self.first.iter().zip(at.slice()).map(|(a, b)| a + b).collect();
            let expected = &whole[IxDyn(&at)];
            let (here, there): (f64, f64) = ((*value).into(), (*expected).into());
            if !here.is_finite() || bytemuck::bytes_of(value) != bytemuck::bytes_of(expected) {
                let name = &self.name;
                return Err(format!("{name} is {here} at {at:?}, and {there} by plain loops"));
            }
        }
        Ok(self.values.len())
    }
}

/// A field of two axes.
pub(crate) fn plane<T>(field: &ArrayD<T>) -> ArrayView2<'_, T> {
    field.view().into_dimensionality::<Ix2>().expect("two axes")
}
