// The functions that each kernel file defines for its ISA; kernels.cc puts the tables together.
#pragma once

#include "engine/ops/cpu/kernels/kernels.h"

namespace skein::engine {

extern const RowKernels kAvx512Rows, kAvx2Rows, kPortableRows;

void StreamAvx512(const StreamProduct& p, int64_t begin, int64_t end);
void StreamAvx2(const StreamProduct& p, int64_t begin, int64_t end);
void StreamPortable(const StreamProduct& p, int64_t begin, int64_t end);

extern const int kBlockTileRowsAvx512;
void PackTileAvx512(const StreamProduct& p, int tile, std::byte* to);
void MultiplyBlockAvx512(const BlockProduct& p, int64_t begin, int64_t end, std::byte* scratch);

extern const int kBlockTileRowsAvx2;
void PackTileAvx2(const StreamProduct& p, int tile, std::byte* to);
void MultiplyBlockAvx2(const BlockProduct& p, int64_t begin, int64_t end, std::byte* scratch);

extern const int kBlockTileRowsPortable;
void PackTilePortable(const StreamProduct& p, int tile, std::byte* to);
void MultiplyBlockPortable(const BlockProduct& p, int64_t begin, int64_t end, std::byte* scratch);

void AttendAvx512(const AttentionUnit& unit, std::byte* scratch);
void AttendAvx2(const AttentionUnit& unit, std::byte* scratch);
void AttendPortable(const AttentionUnit& unit, std::byte* scratch);

}  // namespace skein::engine
