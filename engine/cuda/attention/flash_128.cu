// Attention for head_dim up to 128.
#include "engine/cuda/attention/flash_kernel.h"

namespace skein::engine {

template void LaunchFlash<128>(DType, const FlashArguments&, const AttentionGrid&, CudaStream);

}  // namespace skein::engine
