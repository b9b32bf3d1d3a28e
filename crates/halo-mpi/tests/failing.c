/* An MPI library for one rank, with the ABI of MPICH, in which one call fails: the one with the number in the variable
 * FAILING_CALL. A call that starts an operation and fails has still started it: `failing_goes_on` then uses the memory
 * of all operations, as a library may. */

#include <stdlib.h>
#include <string.h>

enum { FAILED = 15, NONE = 0x2c000000, IDUP, GATHER, BARRIER, SEND = 0x2c010000, RECEIVE = 0x2c020000 };
enum { WORLD = 0x44000000, MARK = 77, MOST = 1000 };

static int calls, started, ended;

static int fails(void)
{
    const char *which = getenv("FAILING_CALL");
    return calls++ == (which ? atoi(which) : -1) ? FAILED : 0;
}

/* The number of calls so far. */
int failing_calls(void) { return calls; }

int PMPI_Init_thread(void) { return FAILED; }

int MPI_Get_library_version(char *text, int *length)
{
    strcpy(text, "MPICH Version: 9.9, of which one call fails");
    *length = (int)strlen(text);
    return 0;
}

int MPI_Error_string(int code, char *text, int *length)
{
    strcpy(text, "one call\n of this library fails");
    *length = (int)strlen(text);
    return code ? 0 : FAILED;
}

int MPI_Initialized(int *flag) { *flag = started; return fails(); }
int MPI_Finalized(int *flag) { *flag = ended; return fails(); }
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    (void)argc, (void)argv, (void)wanted;
    started = 1;
    *provided = 3;
    return 0;
}
int MPI_Query_thread(int *provided) { *provided = 3; return fails(); }
int MPI_Finalize(void) { ended = 1; return fails(); }
int MPI_Abort(int comm, int code) { (void)comm; _Exit(code); }

/* A handle that was never made ends the process. */
static int checked(int comm) { return comm >= WORLD ? fails() : (abort(), 0); }

int MPI_Comm_rank(int comm, int *rank) { *rank = 0; return checked(comm); }
int MPI_Comm_size(int comm, int *size) { *size = 1; return checked(comm); }
int MPI_Comm_test_inter(int comm, int *flag) { *flag = 0; return checked(comm); }
int MPI_Comm_free(int *comm) { return checked(*comm); }
int MPI_Comm_get_errhandler(int comm, int *handler) { *handler = 0x54000000; return checked(comm); }
int MPI_Comm_set_errhandler(int comm, int handler) { (void)handler; return checked(comm); }
int MPI_Errhandler_free(int *handler) { (void)handler; return fails(); }

static void *mark;
static int (*deleted)(int, int, void *, void *);

int MPI_Comm_create_keyval(void *copy, int (*function)(int, int, void *, void *), int *key, void *state)
{
    (void)copy, (void)state;
    deleted = function;
    *key = MARK;
    return fails();
}

int MPI_Comm_get_attr(int comm, int key, void *value, int *found)
{
    static int largest_tag = 0x7fffffff;
    *(void **)value = key == MARK ? mark : &largest_tag;
    *found = *(void **)value != NULL;
    return checked(comm);
}

int MPI_Comm_set_attr(int comm, int key, void *value)
{
    (void)key;
    int code = checked(comm);
    if (!code)
        mark = value;
    return code;
}

/* The owner frees its communicator. */
void failing_free(void)
{
    void *freed = mark;
    mark = NULL;
    if (freed)
        deleted(WORLD, MARK, freed, NULL);
}

/* Operations in progress. */
static int *duplicate;
static const void *gathered_from;
static void *gathered_to;
static struct { const void *from; void *to; int length, tag, stage; } messages[MOST];
static int sent;

int MPI_Comm_idup(int comm, int *made, int *request)
{
    duplicate = made;
    *request = IDUP;
    return checked(comm);
}

int MPI_Iallgather(const void *from, int n, int type, void *to, int m, int types, int comm, int *request)
{
    (void)n, (void)type, (void)m, (void)types;
    gathered_from = from;
    gathered_to = to;
    *request = GATHER;
    return checked(comm);
}

int MPI_Ibarrier(int comm, int *request) { *request = BARRIER; return checked(comm); }

int MPI_Isend(const void *from, int length, int type, int to, int tag, int comm, int *request)
{
    (void)type, (void)to;
    messages[sent].from = from;
    messages[sent].length = length;
    messages[sent].tag = tag;
    *request = SEND + sent++;
    return checked(comm);
}

struct status { int length, high, source, tag, error; };

int MPI_Improbe(int from, int tag, int comm, int *found, int *message, struct status *status)
{
    (void)from, (void)tag;
    *found = 0;
    int code = checked(comm);
    for (int i = 0; !code && !*found && i < sent; ++i) {
        if (messages[i].stage == 0) {
            messages[i].stage = 1;
            *found = 1;
            *message = i;
            *status = (struct status){messages[i].length, 0, 0, messages[i].tag, 0};
        }
    }
    return code;
}

int MPI_Get_count(const struct status *status, int type, int *count)
{
    (void)type;
    *count = status->length;
    return fails();
}

int MPI_Imrecv(void *to, int length, int type, int *message, int *request)
{
    (void)length, (void)type;
    messages[*message].to = to;
    *request = RECEIVE + *message;
    return fails();
}

int MPI_Test(int *request, int *done, void *status)
{
    (void)status;
    int handle = *request;
    if (fails()) {
        *request = NONE;
        return FAILED;
    }
    *done = 1;
    if (handle >= RECEIVE) {
        int i = handle - RECEIVE;
        memcpy(messages[i].to, messages[i].from, (size_t)messages[i].length);
        messages[i].stage = 2;
    } else if (handle >= SEND) {
        *done = messages[handle - SEND].stage == 2;
    } else if (handle == IDUP) {
        *duplicate = WORLD + 1;
    } else if (handle == GATHER) {
        memcpy(gathered_to, gathered_from, 64);
    }
    if (*done)
        *request = NONE;
    return 0;
}

void failing_goes_on(void)
{
    for (int i = 0; i < sent; ++i) {
        if (messages[i].stage != 2 && messages[i].to)
            memset(messages[i].to, 0xee, (size_t)messages[i].length);
    }
    if (duplicate)
        *duplicate = WORLD + 2;
}
