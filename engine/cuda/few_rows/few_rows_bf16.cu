// Products of few rows in bf16.
#include "engine/cuda/few_rows/few_rows_kernel.h"

namespace skein::engine {

void LaunchFewRowsBf16(int shape, const FewRowsArguments& arguments, int blocks,
                       CudaStream stream) {
  LaunchFewRowsShape<BF16>(shape, arguments, blocks, stream);
}

}  // namespace skein::engine
