// Skinny GEMM in f16.
#include "engine/cuda/skinny_gemm/skinny_gemm_kernel.h"

namespace skein::engine {

void LaunchSkinnyGemmF16(int shape, const SkinnyGemmArguments& arguments, int blocks,
                         CudaStream stream) {
  LaunchSkinnyGemmShape<simt::Half>(shape, arguments, blocks, stream);
}

}  // namespace skein::engine
