// Wide tiles on Hopper for head_dim up to 64.
#include "engine/cuda/attention/wgmma_kernel.h"

namespace skein::engine {

template void LaunchWgmma<64>(DType, const FlashArguments&, const AttentionGrid&, CudaStream);

}  // namespace skein::engine
