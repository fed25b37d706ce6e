#include "engine/model/sharing/extra_kv.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu_device.h"
#include "engine/kv/kv_pages.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<ExtraKv>> ExtraKv::Make(Parts parts) {
  std::unique_ptr<ExtraKv> made(new ExtraKv(std::move(parts)));
  const int64_t own_bytes = KvPageBytes(made->own(), made->parts_.kv);
  if (made->parts_.budget->Take(static_cast<size_t>(own_bytes))) {
    made->counted_bytes_ = own_bytes;
    return made;
  }
  return absl::ResourceExhaustedError(absl::StrCat("KV: wanted ", own_bytes, " bytes, free are ",
                                                   made->parts_.budget->Use().free_bytes,
                                                   " of the budget"));
}

ExtraKv::~ExtraKv() { parts_.budget->Give(static_cast<size_t>(counted_bytes_ + extra_bytes_)); }

BlockRange ExtraKv::Come() {
  SKEIN_CHECK(extra_bytes_ == 0);
  const KvSpec& kv = parts_.kv;
  const auto room = static_cast<int64_t>(parts_.budget->Use().free_bytes);
  const int64_t count = std::min(KvBlocksIn(room, kv), parts_.extra_blocks);
  const int64_t bytes = KvPageBytes(count, kv);
  if (!parts_.budget->Take(static_cast<size_t>(bytes))) return {};
  extra_bytes_ = bytes;
  return {{static_cast<int32_t>(own())}, count};
}

absl::Status ExtraKv::Go(std::span<const BlockMove> moves) {
  const int64_t block_bytes = parts_.kv.BlockBytes();
  for (void* const layer : parts_.layers) {
    auto* const base = static_cast<std::byte*>(layer);
    for (const BlockMove& move : moves) {
      absl::Status copied = parts_.device->Copy(
          base + move.to.value * block_bytes, base + move.from.value * block_bytes,
          static_cast<size_t>(block_bytes), CopyKind::kDeviceToDevice);
      if (!copied.ok()) return copied;
    }
    GiveBackPages(base + own() * block_bytes,
                  static_cast<size_t>(parts_.extra_blocks * block_bytes));
  }
  parts_.budget->Give(static_cast<size_t>(std::exchange(extra_bytes_, 0)));
  return absl::OkStatus();
}

}  // namespace skein::engine
