// Skinny GEMM in bf16.
#include "engine/cuda/skinny_gemm/skinny_gemm_kernel.h"

namespace skein::engine {

void LaunchSkinnyGemmBf16(int shape, const SkinnyGemmArguments& arguments, int blocks,
                          CudaStream stream) {
  LaunchSkinnyGemmShape<BF16>(shape, arguments, blocks, stream);
}

}  // namespace skein::engine
