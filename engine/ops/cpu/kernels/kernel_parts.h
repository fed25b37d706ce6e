// The functions that each kernel file defines for its ISA; kernels.cc puts the tables together.
#pragma once

#include "engine/ops/cpu/kernels/kernels.h"

namespace skein::engine {

extern const RowKernels kAvx512Bf16Rows, kAvx512Rows, kAvx2Rows, kPortableRows;
extern const ColumnKernels kAvx512Bf16Columns, kAvx512Columns, kAvx2Columns, kPortableColumns;

void StreamAvx512Bf16(const StreamProduct& p, int64_t begin, int64_t end);
void StreamAvx512(const StreamProduct& p, int64_t begin, int64_t end);
void StreamAvx2(const StreamProduct& p, int64_t begin, int64_t end);
void StreamPortable(const StreamProduct& p, int64_t begin, int64_t end);

void AttendAvx512Bf16(const AttentionUnit& unit, std::byte* scratch);
void AttendAvx512(const AttentionUnit& unit, std::byte* scratch);
void AttendAvx2(const AttentionUnit& unit, std::byte* scratch);
void AttendPortable(const AttentionUnit& unit, std::byte* scratch);

}  // namespace skein::engine
