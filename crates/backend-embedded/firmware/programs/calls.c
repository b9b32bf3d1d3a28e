/* What the tests of embedded devices call: arguments and results, printing, faults, a loop without end. */

#include <stdint.h>

#if defined(__riscv)
static volatile uint8_t *const uart = (volatile uint8_t *)0x10000000;
static int is_busy(void) { return !(uart[5] & 0x20); }
#else
static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000;
static int is_busy(void) { return uart[1] & 1; }
#endif

int32_t counter = 40;
uint32_t numbers[1024];

int32_t add(int32_t a, int32_t b) { return a + b; }

int64_t add_long(int64_t a, int64_t b) { return a + b; }

float add_float(float a, float b) { return a + b; }

double add_double(double a, double b) { return a + b; }

/* Weighs every argument differently, so that none can take another's place. */
double mix(int8_t a, double b, int64_t c, float d, uint8_t e, double f, int32_t g, float h, int64_t i, double j,
           int32_t k, double l, uint16_t m, float n, double o, double p, double q, float r)
{
    return a + 2 * b + 3 * (double)c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h + 19 * (double)i + 23 * j + 29 * k
           + 31 * l + 37 * m + 41 * n + 43 * o + 47 * p + 53 * q + 59 * r;
}

int32_t count(void) { return ++counter; }

uint32_t sum(const uint32_t *values, uint32_t n)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += values[i];
    return total;
}

void say(const char *text)
{
    while (*text) {
        while (is_busy())
            ;
        *uart = (uint8_t)*text++;
    }
}

/* Calls itself `depth` times, with more than 64 bytes of stack each time. */
uint32_t recurse(uint32_t depth)
{
    volatile uint32_t frame[16];
    frame[0] = depth;
    return depth == 0 ? 0 : recurse(depth - 1) + frame[0] - depth + 1;
}

uint32_t load(const volatile uint32_t *place) { return *place; }

void store(volatile uint32_t *place, uint32_t value) { *place = value; }

void breakpoint(void)
{
#if defined(__riscv)
    __asm__ volatile("ebreak");
#else
    __asm__ volatile("bkpt #0");
#endif
}

void environment_call(void)
{
#if defined(__riscv)
    __asm__ volatile("ecall");
#else
    __asm__ volatile("svc #0");
#endif
}

void illegal(void)
{
#if defined(__riscv)
    __asm__ volatile(".4byte 0xffffffff");
#else
    __asm__ volatile("udf #0");
#endif
}

#if defined(__riscv) || defined(__ARM_FP)
/* Turns floating point off, and then uses it. */
void disable_floats(void)
{
#if defined(__riscv)
    __asm__ volatile("csrc mstatus, %0\n fmv.x.d t0, ft0" : : "r"(0x6000) : "t0");
#else
    *(volatile uint32_t *)0xe000ed88 = 0;
    __asm__ volatile("dsb\n isb\n vmov r0, s0" : : : "r0");
#endif
}
#endif

#if defined(__arm__)
/* Only privileged code can use memory without a region of the memory protection. */
void drop_privileges(void) { __asm__ volatile("msr control, %0\n isb" : : "r"(1)); }
#endif

void hang(void)
{
    for (;;)
        __asm__ volatile("");
}

void nothing(void) {}
