// A star forest of two ranks by PETSc.
#include <petscsf.h>
#include <stdlib.h>

#define CHECK(call) PetscCallAbort(PETSC_COMM_WORLD, call)

struct forest {
    PetscSF sf;
    MPI_Datatype item;
};

// MPI is running.
void forest_start(void) { CHECK(PetscInitializeNoArguments()); }

void forest_end(void) { CHECK(PetscFinalize()); }

// Leaf `at[i]` of this rank points to root `to[i]` of the other.
struct forest *forest_new(int items, int components, int count, const unsigned *at, const unsigned *to, int other)
{
    struct forest *made = malloc(sizeof *made);
    PetscInt *leaves = malloc(count * sizeof *leaves);
    PetscSFNode *roots = malloc(count * sizeof *roots);
    for (int i = 0; i < count; i++) {
        leaves[i] = at[i];
        roots[i].rank = other;
        roots[i].index = to[i];
    }
    CHECK(PetscSFCreate(PETSC_COMM_WORLD, &made->sf));
    CHECK(PetscSFSetFromOptions(made->sf));
    CHECK(PetscSFSetGraph(made->sf, items, count, leaves, PETSC_COPY_VALUES, roots, PETSC_COPY_VALUES));
    CHECK(PetscSFSetUp(made->sf));
    MPI_Type_contiguous(components, MPIU_REAL, &made->item);
    MPI_Type_commit(&made->item);
    free(leaves);
    free(roots);
    return made;
}

void forest_free(struct forest *forest)
{
    CHECK(PetscSFDestroy(&forest->sf));
    MPI_Type_free(&forest->item);
    free(forest);
}

void forest_broadcast(struct forest *forest, const double *roots, double *leaves)
{
    CHECK(PetscSFBcastBegin(forest->sf, forest->item, roots, leaves, MPI_REPLACE));
    CHECK(PetscSFBcastEnd(forest->sf, forest->item, roots, leaves, MPI_REPLACE));
}

void forest_sum(struct forest *forest, const double *leaves, double *roots)
{
    CHECK(PetscSFReduceBegin(forest->sf, forest->item, leaves, roots, MPI_SUM));
    CHECK(PetscSFReduceEnd(forest->sf, forest->item, leaves, roots, MPI_SUM));
}
