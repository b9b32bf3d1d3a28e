// The loop over tiles by StarPU, on its first OpenCL device.
#define CL_TARGET_OPENCL_VERSION 120
#include <starpu.h>
#include <starpu_opencl.h>
#include <starpu_profiling.h>
#include <stdlib.h>
#include <string.h>

static struct starpu_opencl_program program;
static int opencl, node;

static starpu_data_handle_t *tiles;
static double *values;
static size_t count, len;

static void check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "StarPU: %s: %d\n", what, code);
        abort();
    }
}

static void change(void *buffers[], void *arguments)
{
    cl_mem x = (cl_mem)STARPU_VECTOR_GET_DEV_HANDLE(buffers[0]);
    cl_ulong n = STARPU_VECTOR_GET_NX(buffers[0]);
    cl_uint rounds;
    starpu_codelet_unpack_args(arguments, &rounds);
    cl_kernel kernel;
    cl_command_queue queue;
    check(starpu_opencl_load_kernel(&kernel, &queue, &program, "change", opencl), "load_kernel");
    check(clSetKernelArg(kernel, 0, sizeof x, &x), "clSetKernelArg");
    check(clSetKernelArg(kernel, 1, sizeof n, &n), "clSetKernelArg");
    check(clSetKernelArg(kernel, 2, sizeof rounds, &rounds), "clSetKernelArg");
    size_t local = 64, global = (n + local - 1) / local * local;
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    starpu_opencl_release_kernel(kernel);
}

static struct starpu_codelet codelet = {
    .where = STARPU_OPENCL,
    .opencl_funcs = {change},
    .opencl_flags = {STARPU_OPENCL_ASYNC},
    .nbuffers = 1,
    .modes = {STARPU_RW},
    .name = "change",
};

// Starts StarPU, which keeps its files in this folder and enqueues as many tasks ahead. It pauses at first. Writes the
// name of its device. Returns another value than 0 if it has none.
int tiles_start(const char *folder, int ahead, const char *source, char *name, size_t bytes)
{
    setenv("STARPU_HOME", folder, 1);
    setenv("STARPU_SILENT", "1", 1);
    setenv("STARPU_OPENCL_ON_CPUS", "1", 1);
    char text[16];
    snprintf(text, sizeof text, "%d", ahead);
    setenv("STARPU_OPENCL_PIPELINE", text, 1);
    struct starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncpus = 0;
    conf.ncuda = 0;
    conf.nopencl = 1;
    conf.sched_policy_name = "eager";
    int code = starpu_init(&conf);
    if (code != 0)
        return code;
    int worker = starpu_worker_get_by_type(STARPU_OPENCL_WORKER, 0);
    node = starpu_worker_get_memory_node(worker);
    opencl = starpu_worker_get_devid(worker);
    cl_device_id device;
    starpu_opencl_get_device(opencl, &device);
    check(clGetDeviceInfo(device, CL_DEVICE_NAME, bytes, name, NULL), "clGetDeviceInfo");
    check(starpu_opencl_load_opencl_from_string(source, &program, NULL), "load_opencl_from_string");
    starpu_pause();
    return 0;
}

void tiles_stop(void)
{
    starpu_resume();
    starpu_opencl_unload_opencl(&program);
    starpu_shutdown();
}

// StarPU's threads take processor time without work, unless they pause.
void tiles_resume(void) { starpu_resume(); }

void tiles_pause(void) { starpu_pause(); }

void tiles_register(const double *from, size_t tile_count, size_t tile_len)
{
    count = tile_count;
    len = tile_len;
    tiles = calloc(count, sizeof *tiles);
    check(starpu_malloc((void **)&values, count * len * sizeof *values), "malloc");
    memcpy(values, from, count * len * sizeof *values);
    for (size_t i = 0; i < count; i++)
        starpu_vector_data_register(&tiles[i], STARPU_MAIN_RAM, (uintptr_t)(values + i * len), len, sizeof *values);
}

// Writes the values, and forgets the tiles.
void tiles_unregister(double *to)
{
    for (size_t i = 0; i < count; i++)
        starpu_data_unregister(tiles[i]);
    memcpy(to, values, count * len * sizeof *values);
    starpu_free(values);
    free(tiles);
}

static void change_on_host(void *tile)
{
    ((double *)starpu_data_handle_to_pointer(tile, STARPU_MAIN_RAM))[0] += 1.0;
    starpu_data_release(tile);
}

// Changes all tiles on the device, and then one element of each on the host.
void tiles_run(cl_uint rounds)
{
    for (size_t i = 0; i < count; i++) {
        starpu_data_prefetch_on_node(tiles[i], node, 1);
        int code = starpu_task_insert(&codelet, STARPU_RW, tiles[i], STARPU_VALUE, &rounds, sizeof rounds, 0);
        check(code, "task_insert");
        // A prefetch to the host would not wait for the task, and an access after the loop would copy too late.
        check(starpu_data_acquire_cb(tiles[i], STARPU_RW, change_on_host, tiles[i]), "acquire_cb");
    }
    for (size_t i = 0; i < count; i++) {
        check(starpu_data_acquire(tiles[i], STARPU_R), "acquire");
        starpu_data_release(tiles[i]);
    }
}

static unsigned long long copied(int from, int to)
{
    struct starpu_profiling_bus_info info;
    check(starpu_bus_get_profiling_info(starpu_bus_get_id(from, to), &info), "bus_get_profiling_info");
    return info.transferred_bytes;
}

// Runs so many times. Returns the bytes that this copies in both directions.
unsigned long long tiles_count(cl_uint rounds, size_t runs)
{
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    copied(STARPU_MAIN_RAM, node);
    copied(node, STARPU_MAIN_RAM);
    for (size_t i = 0; i < runs; i++)
        tiles_run(rounds);
    starpu_profiling_status_set(STARPU_PROFILING_DISABLE);
    return copied(STARPU_MAIN_RAM, node) + copied(node, STARPU_MAIN_RAM);
}
