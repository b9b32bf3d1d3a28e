/* The MPI calls of the rivals. Errors end the job, which is MPI's default. */

#include <mpi.h>
#include <stdlib.h>

void calls_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

/* A box in an array of double. It is never freed. */
MPI_Datatype *calls_subarray(const int sizes[3], const int extents[3], const int starts[3])
{
    MPI_Datatype *made = malloc(sizeof *made);
    MPI_Type_create_subarray(3, sizes, extents, starts, MPI_ORDER_C, MPI_DOUBLE, made);
    MPI_Type_commit(made);
    return made;
}

MPI_Datatype *calls_double(void)
{
    MPI_Datatype *made = malloc(sizeof *made);
    *made = MPI_DOUBLE;
    return made;
}

/* Messages in transit between the ranks of the job. */
struct requests {
    int count;
    MPI_Request all[1024];
};

struct requests *calls_requests(void) { return calloc(1, sizeof(struct requests)); }

void calls_send(struct requests *r, const void *from, int count, MPI_Datatype *type, int peer, int tag)
{
    MPI_Isend(from, count, *type, peer, tag, MPI_COMM_WORLD, &r->all[r->count++]);
}

void calls_receive(struct requests *r, void *to, int count, MPI_Datatype *type, int peer, int tag)
{
    MPI_Irecv(to, count, *type, peer, tag, MPI_COMM_WORLD, &r->all[r->count++]);
}

/* The number of a request that is complete, or a negative number if all were complete before. */
int calls_wait_any(struct requests *r)
{
    int index;
    MPI_Waitany(r->count, r->all, &index, MPI_STATUS_IGNORE);
    return index;
}

void calls_wait_all(struct requests *r)
{
    MPI_Waitall(r->count, r->all, MPI_STATUSES_IGNORE);
    r->count = 0;
}

static void wait(MPI_Request *request)
{
    int done = 0;
    while (!done)
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

static void send(const void *bytes, int count, int peer)
{
    MPI_Request request;
    MPI_Isend(bytes, count, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request);
    wait(&request);
}

/* As halo-mpi receives: the message has arrived before its buffer is handed over. */
static void receive(void *bytes, int count, int peer)
{
    MPI_Message message;
    MPI_Status status;
    MPI_Request request;
    int found = 0, length = 0;
    while (!found)
        MPI_Improbe(peer, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &message, &status);
    MPI_Get_count(&status, MPI_BYTE, &length);
    if (length != count)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Imrecv(bytes, count, MPI_BYTE, &message, &request);
    wait(&request);
}

/* Sends bytes to the other of two ranks and back, so many times. */
void calls_ping_pong(char *bytes, int count, int rank, int times)
{
    for (int i = 0; i < times; ++i) {
        if (rank == 0)
            send(bytes, count, 1);
        receive(bytes, count, 1 - rank);
        if (rank == 1)
            send(bytes, count, 0);
    }
}

/* The same with requests that are made once. */
void calls_persistent(char *bytes, int count, int rank, int times)
{
    MPI_Request sending, receiving;
    MPI_Send_init(bytes, count, MPI_BYTE, 1 - rank, 8, MPI_COMM_WORLD, &sending);
    MPI_Recv_init(bytes, count, MPI_BYTE, 1 - rank, 8, MPI_COMM_WORLD, &receiving);
    for (int i = 0; i < times; ++i) {
        if (rank == 0) {
            MPI_Start(&sending);
            wait(&sending);
        }
        MPI_Start(&receiving);
        wait(&receiving);
        if (rank == 1) {
            MPI_Start(&sending);
            wait(&sending);
        }
    }
    MPI_Request_free(&sending);
    MPI_Request_free(&receiving);
}
