/* Calls functions on 64-bit RISC-V: QEMU's machine `virt` as a monitor, which waits for a ring of the UART; or, where
 * DEBUGGER is defined, any board as a routine that a debugger starts and that ends at a breakpoint. */

#include "mailbox.h"

    .file   "riscv64.S"

/* Instructions between the two readings of the counter that are not the function's: csrr, sd, jalr. */
#define COUNTED_HERE 3

#define MSTATUS_FLOAT 0x6000

#ifdef DEBUGGER
/* Memory protection of a page: its address by its size, locked, so that it holds in machine mode, too. */
#define GUARD_READ_EXECUTE 0x9d
#else
#define UART 0x10000000
#define RECEIVED 0        /* offsets in the UART, a 16550 */
#define TRANSMIT 0
#define INTERRUPTS 1
#define LINE 5
#define LINE_RECEIVED 0x01
#define LINE_SENT 0x20

#define PLIC 0x0c000000   /* interrupt 10 is the UART's, context 0 this processor in machine mode */
#define UART_INTERRUPT 10
#define PLIC_ENABLE (PLIC + 0x2000)
#define PLIC_THRESHOLD (PLIC + 0x200000)
#define PLIC_CLAIM (PLIC + 0x200004)

#define MIE_EXTERNAL 0x800

/* Memory protection, entry 1: from address 0 to address 1, locked, so that it holds in machine mode, too. */
#define PROTECT_READ_EXECUTE 0x8d00
#endif

    .section .text
    .globl start
start:
    lla     t0, trap
    csrw    mtvec, t0
#ifdef DEBUGGER
    lla     s1, mailbox
    /* Without a page below the stack, nothing is touched that a processor need not have. */
    ld      t0, GUARDS(s1)
    beqz    t0, call
    srli    t0, t0, 2
    ori     t0, t0, GUARD_BYTES / 8 - 1
    csrw    pmpaddr0, t0
    li      t0, GUARD_READ_EXECUTE
    csrs    pmpcfg0, t0
    j       call
#else
    /* Nothing below the stack can be written: a stack that overflows is a fault. */
    lla     t0, start
    srli    t0, t0, 2
    csrw    pmpaddr0, t0
    lla     t0, stack_limit
    srli    t0, t0, 2
    csrw    pmpaddr1, t0
    li      t0, PROTECT_READ_EXECUTE
    csrw    pmpcfg0, t0
    li      t1, PLIC
    li      t0, 1
    sw      t0, 4 * UART_INTERRUPT(t1)
    li      t1, PLIC_ENABLE
    li      t0, 1 << UART_INTERRUPT
    sw      t0, 0(t1)
    li      t1, PLIC_THRESHOLD
    sw      zero, 0(t1)
    /* Interrupts end a wfi and are never taken: mstatus.MIE stays clear. */
    li      t0, MIE_EXTERNAL
    csrw    mie, t0
    li      s0, UART
    li      t0, 1
    sb      t0, INTERRUPTS(s0)
    li      t1, READY
#endif

/* Tells the host the state in t1, and waits for what it wants next. */
tell:
    lla     s1, mailbox
    sd      t1, STATE(s1)
#ifdef DEBUGGER
    fence
    .globl stopped
stopped:
    j       stopped
#else
    li      s0, UART
    fence   rw, rw
    li      t0, RING
1:  lbu     t1, LINE(s0)
    andi    t1, t1, LINE_SENT
    beqz    t1, 1b
    fence   rw, o
    sb      t0, TRANSMIT(s0)
wait:
    wfi
    li      t2, PLIC_CLAIM
    lw      t0, 0(t2)
1:  lbu     t1, LINE(s0)
    andi    t1, t1, LINE_RECEIVED
    beqz    t1, 2f
    lbu     t1, RECEIVED(s0)
    j       1b
2:  sw      t0, 0(t2)
    fence   i, rw
    ld      t0, STATE(s1)
    li      t1, CALL
    beq     t0, t1, call
    li      t1, COPY
    bne     t0, t1, wait

    ld      a0, INTEGERS(s1)
    ld      a1, INTEGERS + 8(s1)
    ld      a2, INTEGERS + 16(s1)
1:  beqz    a2, 2f
    lbu     t0, 0(a1)
    sb      t0, 0(a0)
    addi    a0, a0, 1
    addi    a1, a1, 1
    addi    a2, a2, -1
    j       1b
2:  li      t1, DONE
    j       tell
#endif

call:
    ld      sp, STACK_POINTER(s1)
    ld      t0, STACK_BYTES(s1)
    sub     sp, sp, t0
    addi    t1, s1, STACK
    mv      t2, sp
1:  beqz    t0, 2f
    ld      t3, 0(t1)
    sd      t3, 0(t2)
    addi    t1, t1, 8
    addi    t2, t2, 8
    addi    t0, t0, -8
    j       1b
    /* The function before may have left floating point off. */
2:  li      t0, MSTATUS_FLOAT
    csrs    mstatus, t0
    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7
    ld      a\n, INTEGERS + 8 * \n(s1)
    fld     fa\n, FLOATS + 8 * \n(s1)
    .endr
    csrw    fcsr, zero
    fence.i
    ld      t0, FUNCTION(s1)
    csrr    t1, minstret
    sd      t1, INSTRUCTIONS(s1)
    jalr    t0
    csrr    t0, minstret
    lla     s1, mailbox
    ld      t1, INSTRUCTIONS(s1)
    sub     t0, t0, t1
    addi    t0, t0, -COUNTED_HERE
    sd      t0, INSTRUCTIONS(s1)
    sd      a0, INTEGERS(s1)
    sd      a1, INTEGERS + 8(s1)
    fsd     fa0, FLOATS(s1)
    fsd     fa1, FLOATS + 8(s1)
    li      t1, DONE
    j       tell

    .balign 4
trap:
    csrr    t0, minstret
    lla     s1, mailbox
    ld      t1, INSTRUCTIONS(s1)
    sub     t0, t0, t1
    addi    t0, t0, -COUNTED_HERE
    sd      t0, INSTRUCTIONS(s1)
    csrr    t0, mcause
    sd      t0, CAUSE(s1)
    csrr    t0, mepc
    sd      t0, PC(s1)
    csrr    t0, mtval
    sd      t0, ADDRESS(s1)
    li      t1, FAULT
    j       tell

#ifdef DEBUGGER
    .bss
    .balign 16
    .globl mailbox
mailbox:
    .space  MAILBOX_BYTES
#endif
