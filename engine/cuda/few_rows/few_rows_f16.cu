// Products of few rows in f16.
#include "engine/cuda/few_rows/few_rows_kernel.h"

namespace skein::engine {

void LaunchFewRowsF16(int shape, const FewRowsArguments& arguments, int blocks, CudaStream stream) {
  LaunchFewRowsShape<simt::Half>(shape, arguments, blocks, stream);
}

}  // namespace skein::engine
