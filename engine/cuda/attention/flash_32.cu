// Attention for head_dim up to 32.
#include "engine/cuda/attention/flash_kernel.h"

namespace skein::engine {

template void LaunchFlash<32>(DType, const FlashArguments&, const AttentionGrid&, CudaStream);

}  // namespace skein::engine
