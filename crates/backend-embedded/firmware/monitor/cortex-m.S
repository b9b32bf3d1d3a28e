/* Calls functions on Arm Cortex-M: QEMU's machine `mps2-an500` as a monitor, which waits for a ring of the UART; or, where
 * DEBUGGER is defined, any board as a routine that a debugger starts and that ends at a breakpoint. */

#include "mailbox.h"

    .file   "cortex-m.S"

#define SYSTEM 0xe000ed00       /* the system control block, and offsets in it */
#define VTOR 0x08
#define CFSR 0x28
#define CFSR_STACKING 0x1010    /* of memory protection or the bus */
#define HFSR 0x2c
#define MMFAR 0x34
#define BFAR 0x38
#define CPACR 0x88
#define MPU_TYPE 0x90
#define MPU_CTRL 0x94
#define MPU_RBAR 0x9c
#define MPU_RASR 0xa0
#define MPU_ON 5                /* with the usual memory outside of its regions */
#define MPU_VALID 0x10          /* of a base address: its low bits are the number of the region */
#define MPU_READ_EXECUTE 0x06020016 /* 4 KiB that are not written; bit 0: the region is on */
#define FPCCR 0xe000ef34
#define ICIALLU 0xe000ef50      /* whatever is written empties the instruction cache */

#ifndef DEBUGGER
#define UART 0x40004000
#define DATA 0                  /* offsets in the UART, Arm's CMSDK */
#define LINE 4
#define CONTROL 8
#define CLEAR 12
#define DIVIDER 16
#define CONTROL_BOTH_WAYS 0x0b  /* send, receive, interrupt when something was received */
#define CLEAR_RECEIVED 2

#define NVIC_ENABLE 0xe000e100  /* interrupt 0 is the UART's */
#define NVIC_CLEAR 0xe000e280
#endif

    .syntax unified
#if defined(__ARM_FP)
    /* Called functions have floating-point numbers in registers of their own (Tag_ABI_VFP_args). */
    .eabi_attribute 28, 1
#endif
    .thumb

    .section .text
    .balign 128
vectors:
    .word   initial_stack
    .word   start
    .rept   14
    .word   trap
    .endr

    .thumb_func
    .globl start
start:
    /* Faults all become hard faults. Interrupts end a wfi and are never taken. */
    cpsid   i
    ldr     r0, =SYSTEM
    /* Whatever ran before may have left causes of faults, which stay until ones are written. */
    ldr     r1, [r0, #CFSR]
    str     r1, [r0, #CFSR]
    ldr     r1, [r0, #HFSR]
    str     r1, [r0, #HFSR]
#ifdef __ARM_FP
    /* A fault returns to the monitor and never to the function: nothing is to be kept of its numbers. */
    ldr     r1, =FPCCR
    movs    r2, #0
    str     r2, [r1]
#endif
#ifdef DEBUGGER
    ldr     r1, =vectors
    str     r1, [r0, #VTOR]
    ldr     r5, =mailbox
    ldr     r1, [r0, #MPU_TYPE]
    cbz     r1, 1f              /* without memory protection */
    ldr     r4, =MPU_READ_EXECUTE
    .irp    n, 0, 1
    ldr     r1, [r5, #GUARDS + 8 * \n]
    /* The last regions of a small unit: those before them may be the program's. */
    bic     r2, r1, #1
    orr     r2, r2, #MPU_VALID + 7 - \n
    str     r2, [r0, #MPU_RBAR]
    and     r2, r1, #1
    orr     r2, r2, r4
    str     r2, [r0, #MPU_RASR]
    .endr
    ldr     r1, [r0, #MPU_CTRL]
    orr     r1, r1, #MPU_ON
    str     r1, [r0, #MPU_CTRL]
    dsb
    isb
1:  b       call
#else
    /* The monitor lies where null pointers lead: it can be read and run, but not written. */
    movs    r1, #MPU_VALID
    str     r1, [r0, #MPU_RBAR]
    ldr     r1, =MPU_READ_EXECUTE | 1
    str     r1, [r0, #MPU_RASR]
    movs    r1, #MPU_ON
    str     r1, [r0, #MPU_CTRL]
    dsb
    isb
    ldr     r4, =UART
    movs    r0, #16
    str     r0, [r4, #DIVIDER]
    movs    r0, #CONTROL_BOTH_WAYS
    str     r0, [r4, #CONTROL]
    /* QEMU, which took no byte as yet, looks for one again when one is read. */
    ldr     r0, [r4, #DATA]
    ldr     r0, =NVIC_ENABLE
    movs    r1, #1
    str     r1, [r0]
    movs    r0, #READY
#endif

/* Tells the host the state in r0, and waits for what it wants next. */
    .thumb_func
tell:
    ldr     r5, =mailbox
    str     r0, [r5, #STATE]
    dsb
#ifdef DEBUGGER
    .thumb_func
    .globl stopped
stopped:
    b       stopped
#else
    ldr     r4, =UART
1:  ldr     r0, [r4, #LINE]
    lsls    r0, r0, #31         /* bit 0: the last byte is not sent yet */
    bmi     1b
    movs    r0, #RING
    str     r0, [r4, #DATA]
wait:
    wfi
    /* The line that interrupts must be low when there is no byte left: only its rise is seen. */
1:  movs    r0, #CLEAR_RECEIVED
    str     r0, [r4, #CLEAR]
    ldr     r0, =NVIC_CLEAR
    movs    r1, #1
    str     r1, [r0]
    ldr     r0, [r4, #LINE]
    lsls    r0, r0, #30         /* bit 1: there is a byte */
    bpl     2f
    ldr     r0, [r4, #DATA]
    b       1b
2:  dsb
    ldr     r0, [r5, #STATE]
    cmp     r0, #CALL
    beq     call
    cmp     r0, #COPY
    bne     wait

    ldr     r0, [r5, #INTEGERS]
    ldr     r1, [r5, #INTEGERS + 8]
    ldr     r2, [r5, #INTEGERS + 16]
1:  cbz     r2, 2f
    ldrb    r3, [r1], #1
    strb    r3, [r0], #1
    subs    r2, r2, #1
    b       1b
2:  movs    r0, #DONE
    b       tell
#endif

call:
    ldr     r0, [r5, #STACK_POINTER]
    ldr     r1, [r5, #STACK_BYTES]
    subs    r0, r0, r1
    mov     sp, r0
    adds    r2, r5, #STACK
1:  cbz     r1, 2f
    ldr     r3, [r2], #4
    str     r3, [r0], #4
    subs    r1, r1, #4
    b       1b
2:
#ifdef __ARM_FP
    /* The function before may have left floating point off. */
    ldr     r0, =SYSTEM
    ldr     r1, =0xf << 20
    str     r1, [r0, #CPACR]
    dsb
    isb
    adds    r0, r5, #FLOATS
    vldmia  r0, {d0-d7}
    movs    r0, #0
    vmsr    fpscr, r0
#endif
    ldr     r0, [r5, #INTEGERS]
    ldr     r1, [r5, #INTEGERS + 8]
    ldr     r2, [r5, #INTEGERS + 16]
    ldr     r3, [r5, #INTEGERS + 24]
    ldr     r6, [r5, #FUNCTION]
    /* Code may have been written since it ran. Of the processors here, that with floating point may have a cache of it. */
    dsb
#ifdef __ARM_FP
    ldr     r7, =ICIALLU
    str     r7, [r7]
    dsb
#endif
    isb
    blx     r6
    ldr     r5, =mailbox
    str     r0, [r5, #INTEGERS]
    str     r1, [r5, #INTEGERS + 8]
#ifdef __ARM_FP
    vstr    d0, [r5, #FLOATS]
    vstr    d1, [r5, #FLOATS + 8]
#endif
    movs    r0, #DONE
    b       tell

    .thumb_func
trap:
    /* The function's stack pointer, of whichever stack it ran on, which need not lead to memory any more. */
    mrs     r2, msp
    lsls    r0, lr, #31 - 2     /* bit 2: of the process */
    it      mi
    mrsmi   r2, psp
    ldr     r0, =initial_stack - 32
    mov     sp, r0
    ldr     r5, =mailbox
    ldr     r4, =SYSTEM
    ldr     r0, [r4, #CFSR]
    str     r0, [r5, #CAUSE]
    str     r0, [r4, #CFSR]
    ldr     r1, [r4, #HFSR]
    str     r1, [r5, #CAUSE + 4]
    str     r1, [r4, #HFSR]
    movs    r1, #0
    lsls    r3, r0, #31 - 7     /* bit 7: MMFAR is valid; bit 15: BFAR is */
    it      mi
    ldrmi   r1, [r4, #MMFAR]
    lsls    r3, r0, #31 - 15
    it      mi
    ldrmi   r1, [r4, #BFAR]
    /* Where the function's registers could not be stacked, nobody knows its place. */
    ldr     r3, =CFSR_STACKING
    tst     r0, r3
    itte    ne
    movne   r1, r2
    movne   r3, #0
    ldreq   r3, [r2, #24]
    str     r1, [r5, #ADDRESS]
    str     r3, [r5, #PC]
    /* The function may have given up privileges that the monitor needs. */
    movs    r1, #0
    msr     control, r1
    isb
    /* Leaves the handler by a frame of its own, to `tell` with a fresh stack. */
    movs    r1, #FAULT
    str     r1, [sp]
    ldr     r1, =tell
    bic     r1, r1, #1
    str     r1, [sp, #24]
    ldr     r1, =0x01000000
    str     r1, [sp, #28]
    ldr     r0, =0xfffffff9
    bx      r0

    .ltorg

#ifdef DEBUGGER
    .bss
    .balign 16
    .space  32                  /* the frame by which a fault leaves its handler */
initial_stack:
    .globl mailbox
mailbox:
    .space  MAILBOX_BYTES
#endif
