#include "engine/cuda/kernels/copy_pieces.h"

#include "engine/cuda/simt/simt.h"

namespace skein::engine {
namespace {

using namespace simt;

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // that a thread has on their way at a time
constexpr uint64_t kVectorBytes = sizeof(uint4);
constexpr uint64_t kTileBytes = kThreads * kVectors * kVectorBytes;  // of a block, at a time
constexpr unsigned kBlocksOfPiece = 8;
// As many as fit into a kernel's arguments (4 KiB), which need no memory of their own.
constexpr int kPiecesMax = 168;

struct Piece {
  unsigned char* to;
  const unsigned char* from;
  uint64_t bytes;
};

struct Pieces {
  Piece piece[kPiecesMax];
};
static_assert(sizeof(Pieces) <= 4096);

// Copies the rest behind the vectors, and all of a piece whose sides are not aligned alike.
__device__ void CopyBytes(const Piece& piece, uint64_t begin, uint64_t end) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * kThreads;
  for (uint64_t i = begin + blockIdx.x * kThreads + threadIdx.x; i < end; i += step) {
    piece.to[i] = piece.from[i];
  }
}

// [begin, end) is whole vectors, aligned on both sides.
__device__ void CopyVectors(const Piece& piece, uint64_t begin, uint64_t end) {
  const uint64_t step = gridDim.x * kTileBytes;
  for (uint64_t tile = begin + blockIdx.x * kTileBytes; tile < end; tile += step) {
    uint4 values[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const uint64_t at = tile + (v * kThreads + threadIdx.x) * kVectorBytes;
      if (at < end) values[v] = Load<uint4>(piece.from + at);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const uint64_t at = tile + (v * kThreads + threadIdx.x) * kVectorBytes;
      if (at < end) Store(piece.to + at, values[v]);
    }
  }
}

// Row y of the grid copies piece y.
__global__ void __launch_bounds__(kThreads) CopyPiecesKernel(Pieces pieces) {
  const Piece piece = pieces.piece[blockIdx.y];
  const auto to = reinterpret_cast<uintptr_t>(piece.to);
  const auto from = reinterpret_cast<uintptr_t>(piece.from);
  if ((to - from) % kVectorBytes != 0) return CopyBytes(piece, 0, piece.bytes);
  const uint64_t odd = (kVectorBytes - to % kVectorBytes) % kVectorBytes;
  const uint64_t head = odd < piece.bytes ? odd : piece.bytes;
  const uint64_t body_end = head + (piece.bytes - head) / kVectorBytes * kVectorBytes;
  CopyBytes(piece, 0, head);
  CopyVectors(piece, head, body_end);
  CopyBytes(piece, body_end, piece.bytes);
}

}  // namespace

void LaunchCopyPieces(std::span<const CopyPiece> pieces, CudaStream stream) {
  while (!pieces.empty()) {
    const auto count = pieces.size() < kPiecesMax ? pieces.size() : kPiecesMax;
    Pieces some;
    uint64_t longest = 0;
    for (size_t i = 0; i < count; ++i) {
      const CopyPiece& piece = pieces[i];
      some.piece[i] = {static_cast<unsigned char*>(piece.to),
                       static_cast<const unsigned char*>(piece.from), piece.bytes};
      if (piece.bytes > longest) longest = piece.bytes;
    }
    const uint64_t tiles = (longest + kTileBytes - 1) / kTileBytes;
    const auto blocks = tiles < kBlocksOfPiece ? static_cast<unsigned>(tiles) : kBlocksOfPiece;
    if (longest > 0) {
      Launch(CopyPiecesKernel, dim3(blocks, static_cast<unsigned>(count)), dim3(kThreads), 0,
             stream, some);
    }
    pieces = pieces.subspan(count);
  }
}

}  // namespace skein::engine
