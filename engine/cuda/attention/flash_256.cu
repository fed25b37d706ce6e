// Attention for head_dim up to 256.
#include "engine/cuda/attention/flash_kernel.h"

namespace skein::engine {

template void LaunchFlash<256>(DType, const FlashArguments&, const AttentionGrid&, CudaStream);

}  // namespace skein::engine
