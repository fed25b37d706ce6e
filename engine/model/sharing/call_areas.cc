#include "engine/model/sharing/call_areas.h"

#include <utility>

#include "engine/device/device.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

size_t SpanBytes(const CallShape& shape) {
  return DeviceBytes(static_cast<size_t>(shape.rows_max) * sizeof(int32_t));
}
size_t InBytes(const CallShape& shape) {
  return DeviceBytes(static_cast<size_t>(shape.rows_max * shape.hidden) *
                     engine::BytesOf(shape.activation));
}
size_t OutBytes(const CallShape& shape) {
  return DeviceBytes(static_cast<size_t>(shape.rows_max * shape.hidden) * sizeof(float));
}
size_t AreaBytes(const CallShape& shape) {
  return SpanBytes(shape) + InBytes(shape) + OutBytes(shape);
}

}  // namespace

size_t CallAreas::BytesOf(const CallShape& shape) {
  return static_cast<size_t>(shape.ranks) * AreaBytes(shape);
}

std::unique_ptr<CallAreas> CallAreas::Allocate(const CallShape& shape) {
  std::unique_ptr<SharedRegion> region = SharedRegion::Allocate(BytesOf(shape));
  if (region == nullptr) return nullptr;
  return std::unique_ptr<CallAreas>(new CallAreas(shape, std::move(region)));
}

std::unique_ptr<CallAreas> CallAreas::Map(const CallShape& shape, const std::string& process,
                                          const std::string& name) {
  std::unique_ptr<SharedRegion> region = SharedRegion::Map(process, name, BytesOf(shape));
  if (region == nullptr) return nullptr;
  return std::unique_ptr<CallAreas>(new CallAreas(shape, std::move(region)));
}

std::byte* CallAreas::At(int owner) const {
  SKEIN_CHECK(owner >= 0 && owner < shape_.ranks);
  return region_->base() + static_cast<size_t>(owner) * AreaBytes(shape_);
}

std::span<int32_t> CallAreas::Spans(int owner) const {
  return {reinterpret_cast<int32_t*>(At(owner)), static_cast<size_t>(shape_.rows_max)};
}

Matrix CallAreas::In(int owner, int64_t rows) const {
  SKEIN_CHECK(rows <= shape_.rows_max);
  return {At(owner) + SpanBytes(shape_), shape_.activation, rows, shape_.hidden, shape_.hidden};
}

Matrix CallAreas::Out(int owner, int64_t rows) const {
  SKEIN_CHECK(rows <= shape_.rows_max);
  return {At(owner) + SpanBytes(shape_) + InBytes(shape_), DType::kF32, rows, shape_.hidden,
          shape_.hidden};
}

}  // namespace skein::engine
