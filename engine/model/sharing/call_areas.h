// The memory by which rows travel in SiDP's compute as a service: each rank has one region, with an
// area for each owner that it may call. The caller writes its rows there, the owner reads them in
// place and puts the results beside them; only a message of some bytes says so (compute_calls.h).
// Pages of areas that no call has used take no memory. Internal to engine/model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/tensor.h"
#include "engine/host/shared_region.h"

namespace skein::engine {

struct CallShape {
  int ranks = 1;
  int64_t rows_max = 0;  // of a call
  int64_t hidden = 0;
  DType activation = DType::kF32;  // of the rows; results are f32
};

class CallAreas {
 public:
  // Null: there is no memory.
  static std::unique_ptr<CallAreas> Allocate(const CallShape& shape);
  // As SharedRegion::Map.
  static std::unique_ptr<CallAreas> Map(const CallShape& shape, const std::string& process,
                                        const std::string& name);

  // Of the caller whose region it is, for `owner`.
  std::span<int32_t> Spans(int owner) const;  // [rows_max]: rows of each sequence
  Matrix In(int owner, int64_t rows) const;   // [rows, hidden]
  Matrix Out(int owner, int64_t rows) const;  // f32 [rows, hidden]
  const std::string& name() const { return region_->name(); }

  static size_t BytesOf(const CallShape& shape);

 private:
  CallAreas(const CallShape& shape, std::unique_ptr<SharedRegion> region)
      : shape_(shape), region_(std::move(region)) {}
  std::byte* At(int owner) const;

  const CallShape shape_;
  const std::unique_ptr<SharedRegion> region_;
};

}  // namespace skein::engine
