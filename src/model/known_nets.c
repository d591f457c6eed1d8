/* Nets that come with muster. The same texts are installed as files (nets/), to start one's own from; a test
 * holds them equal. */
#include "model/layer.h"

const mst_known_net mst_known_nets[] = {
    {
        .name = "lenet",
        .help = "LeNet-5 for 28x28 images: two convolutions with average pooling, 120, 84",
        .text = "# LeNet-5 for images of 28x28 (LeCun et al. 1998), with relu and average pooling.\n"
                "conv1: conv 6 kernel=5 pad=2\n"
                "relu\n"
                "avgpool kernel=2\n"
                "conv2: conv 16 kernel=5\n"
                "relu\n"
                "avgpool kernel=2\n"
                "fc1: linear 120\n"
                "relu\n"
                "fc2: linear 84\n"
                "relu\n"
                "fc3: linear classes\n",
        .in = {1, 28, 28},
        .n_classes = 10,
    },
    {
        .name = "lenet-small",
        .help = "LeNet with kernels of 3x3 and no padding",
        .text = "# LeNet with smaller kernels and without padding.\n"
                "conv1: conv 6 kernel=3\n"
                "relu\n"
                "avgpool kernel=2\n"
                "conv2: conv 16 kernel=3\n"
                "relu\n"
                "avgpool kernel=2\n"
                "fc1: linear 120\n"
                "relu\n"
                "fc2: linear 84\n"
                "relu\n"
                "fc3: linear classes\n",
        .in = {1, 28, 28},
        .n_classes = 10,
    },
    {
        .name = "alexnet",
        .help = "AlexNet in one tower, 61 million parameters, for 3x224x224 images",
        .text = "# AlexNet in one tower (Krizhevsky 2014), for images of 3x224x224: 61,100,840 parameters "
                "with 1,000 classes.\n"
                "conv1: conv 64 kernel=11 stride=4 pad=2\n"
                "relu\n"
                "maxpool kernel=3 stride=2\n"
                "conv2: conv 192 kernel=5 pad=2\n"
                "relu\n"
                "maxpool kernel=3 stride=2\n"
                "conv3: conv 384 kernel=3 pad=1\n"
                "relu\n"
                "conv4: conv 256 kernel=3 pad=1\n"
                "relu\n"
                "conv5: conv 256 kernel=3 pad=1\n"
                "relu\n"
                "maxpool kernel=3 stride=2\n"
                "dropout 0.5\n"
                "fc6: linear 4096\n"
                "relu\n"
                "dropout 0.5\n"
                "fc7: linear 4096\n"
                "relu\n"
                "fc8: linear classes\n",
        .in = {3, 224, 224},
        .n_classes = 1000,
    },
    {
        .name = "alexnet-paper",
        .help = "AlexNet with normalisation and groups, as in the paper",
        .text = "# AlexNet as in the paper (Krizhevsky et al. 2012), with normalisation and groups, for "
                "images of 3x224x224.\n"
                "# The paper's alpha of 1e-4 is not divided by the window of 5 channels; here it is.\n"
                "conv1: conv 96 kernel=11 stride=4 pad=2\n"
                "relu\n"
                "lrn size=5 alpha=5e-4 beta=0.75 k=2\n"
                "maxpool kernel=3 stride=2\n"
                "conv2: conv 256 kernel=5 pad=2 groups=2\n"
                "relu\n"
                "lrn size=5 alpha=5e-4 beta=0.75 k=2\n"
                "maxpool kernel=3 stride=2\n"
                "conv3: conv 384 kernel=3 pad=1\n"
                "relu\n"
                "conv4: conv 384 kernel=3 pad=1 groups=2\n"
                "relu\n"
                "conv5: conv 256 kernel=3 pad=1 groups=2\n"
                "relu\n"
                "maxpool kernel=3 stride=2\n"
                "fc6: linear 4096\n"
                "relu\n"
                "dropout 0.5\n"
                "fc7: linear 4096\n"
                "relu\n"
                "dropout 0.5\n"
                "fc8: linear classes\n",
        .in = {3, 224, 224},
        .n_classes = 1000,
    },
    {
        .name = "mlp",
        .help = "hidden layers of 300 and 100, or of --hidden",
        .text = "# Two hidden layers.\n"
                "fc1: linear 300\n"
                "relu\n"
                "fc2: linear 100\n"
                "relu\n"
                "fc3: linear classes\n",
        .in = {1, 28, 28},
        .n_classes = 10,
    },
    {0},
};
