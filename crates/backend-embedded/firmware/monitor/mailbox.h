/* What the host and a monitor tell each other: offsets in the mailbox. src/mailbox.rs has the same numbers. All fields are
 * 64 bits wide, little-endian. */

#define STATE 0
#define FUNCTION 8
#define STACK_BYTES 16
#define INSTRUCTIONS 24
#define CAUSE 32
#define PC 40
#define ADDRESS 48
#define STACK_POINTER 56
#define INTEGERS 64  /* eight registers: arguments, then results */
#define FLOATS 128   /* likewise */
#define GUARDS 192   /* pages that the function must not write, below the stack and that of null pointers, which a debugger
                      * asks for: their addresses with bit 0 set, or 0 */
#define STACK 208    /* arguments that have no register */
#define MAILBOX_BYTES 1232

/* The size of a page that is guarded, and what its address is a multiple of. */
#define GUARD_BYTES 4096

/* States. The host writes CALL and COPY, the monitor the others. COPY copies as many bytes as the third integer register
 * says to where the first points from where the second does: code that the host wrote there itself would run as the
 * processor knew it before. */
#define READY 1
#define CALL 2
#define DONE 3
#define FAULT 4
#define COPY 5

/* The byte by which each side tells the other to look into the mailbox: ASCII's start of heading. */
#define RING 1
