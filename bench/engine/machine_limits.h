// The limits of the machine, measured; the engine's figures stand beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace skein::bench {

// A read-only sweep over memory that no cache holds, in huge pages where the kernel gives them.
class Sweep {
 public:
  Sweep();

  // Reads the next `bytes` on `threads`, each its own part; goes round and round 1 GiB.
  void Read(size_t bytes, int threads);

 private:
  struct Unmap {
    void operator()(uint8_t* data) const;
  };
  std::unique_ptr<uint8_t, Unmap> memory_;
  size_t next_ = 0;
};

// One product of a layer: [rows, depth] · [columns, depth]ᵀ.
struct GemmShape {
  int64_t columns = 0;
  int64_t depth = 0;
};

// Seconds that oneDNN takes, on `threads` of its own, for all `shapes` once with `rows` rows: bf16
// in, f32 out, weights row-major as checkpoints have them. Best of a few passes.
double GemmSeconds(const std::vector<GemmShape>& shapes, int64_t rows, int threads);

}  // namespace skein::bench
