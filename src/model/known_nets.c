/* Nets that come with muster. Their texts are the files of nets/, which are installed, too, to start one's
 * own from: known_net_texts.h is made of them when CMake configures (CMakeLists.txt). */
#include "known_net_texts.h"
#include "model/layer.h"

const mst_known_net mst_known_nets[] = {
    {
        .name = "lenet",
        .help = "LeNet-5 for 28x28 images: two convolutions with average pooling, 120, 84",
        .text = MST_NET_LENET,
        .in = {1, 28, 28},
        .n_classes = 10,
    },
    {
        .name = "lenet-small",
        .help = "LeNet with kernels of 3x3 and no padding",
        .text = MST_NET_LENET_SMALL,
        .in = {1, 28, 28},
        .n_classes = 10,
    },
    {
        .name = "alexnet",
        .help = "AlexNet in one tower, 61 million parameters, for 3x224x224 images",
        .text = MST_NET_ALEXNET,
        .in = {3, 224, 224},
        .n_classes = 1000,
    },
    {
        .name = "alexnet-paper",
        .help = "AlexNet with normalisation and groups, as in the paper",
        .text = MST_NET_ALEXNET_PAPER,
        .in = {3, 224, 224},
        .n_classes = 1000,
    },
    {
        .name = "mlp",
        .help = "hidden layers of 300 and 100, or of --hidden",
        .text = MST_NET_MLP,
        .in = {1, 28, 28},
        .n_classes = 10,
        .takes_hidden = true,
    },
    {
        .name = "wide-deep",
        .help = "Wide & Deep: linear weights plus an MLP over embeddings",
        .text = MST_NET_WIDE_DEEP,
        .n_classes = 2,
        .takes_hidden = true,
    },
    {
        .name = "deepfm",
        .help = "DeepFM: a factorisation machine plus an MLP over the same embeddings",
        .text = MST_NET_DEEPFM,
        .n_classes = 2,
        .takes_hidden = true,
        .fields = 2,
        .fields_with_numbers = 2,
    },
    {
        .name = "dcn",
        .help = "DCN v2: cross layers beside an MLP over embeddings",
        .text = MST_NET_DCN,
        .n_classes = 2,
        .takes_hidden = true,
    },
    {
        .name = "dlrm",
        .help = "DLRM: dot products of embeddings and numbers, then an MLP",
        .text = MST_NET_DLRM,
        .n_classes = 2,
        .takes_hidden = true,
        .fields = 2,
    },
    {0},
};
