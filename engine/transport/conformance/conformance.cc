#include "engine/transport/conformance/conformance.h"

#include <algorithm>
#include <cstring>

namespace skein::engine {
std::string RandomBytes(size_t bytes, std::mt19937_64* random) {
  std::string data(bytes, '\0');
  for (char& c : data) c = static_cast<char>((*random)());
  return data;
}

TransportConformance::TransportConformance() : world_(MakeWorld(GetParam())) {
  NewSource();
  target_ = world_.make_target();
  peer_ = Connected(target_->Describe());
}

void TransportConformance::NewSource() {
  source_ = world_.make_source();
  void* const base = world_.device ? world_.device->Alloc(kSourceBytes).value() : nullptr;
  if (world_.device) {
    EXPECT_TRUE(world_.device->Synchronize().ok());  // it is zero now
  }
  auto region = source_->Register(base, kSourceBytes);
  EXPECT_TRUE(region.ok()) << region.status();
  memory_ = *region;
}

void TransportConformance::FillSource(size_t offset, const std::string& data) {
  std::byte* const place = memory_.base + offset;
  if (world_.device == nullptr) {
    std::memcpy(place, data.data(), data.size());
    return;
  }
  EXPECT_TRUE(world_.device->Copy(place, data.data(), data.size(), CopyKind::kHostToDevice).ok());
  EXPECT_TRUE(world_.device->Synchronize().ok());
}

std::string TransportConformance::SourceBytes(size_t offset, size_t bytes) const {
  const std::byte* const place = memory_.base + offset;
  std::string data(bytes, '\0');
  if (world_.device == nullptr) {
    std::memcpy(data.data(), place, bytes);
    return data;
  }
  EXPECT_TRUE(world_.device->Copy(data.data(), place, bytes, CopyKind::kDeviceToHost).ok());
  EXPECT_TRUE(world_.device->Synchronize().ok());
  return data;
}

Peer TransportConformance::Connected(const std::string& description) {
  auto peer = source_->Connect(description);
  EXPECT_TRUE(peer.ok()) << peer.status();
  return peer.ok() ? *peer : Peer{};
}

TransferId TransportConformance::Posted(TransferOp op, const std::vector<TransferPiece>& pieces,
                                        std::chrono::nanoseconds timeout) {
  auto id = source_->Post(peer_.id, op, pieces, timeout);
  EXPECT_TRUE(id.ok()) << id.status();
  return id.ok() ? *id : TransferId{};
}

TransferId TransportConformance::PutUnder(GrantId grant, size_t region, size_t bytes) {
  const std::vector<TransferPiece> pieces = {Piece(region, 0, 0, bytes)};
  auto id = source_->PostUnder(grant, peer_.id, TransferOp::kPut, pieces, kLong);
  EXPECT_TRUE(id.ok()) << id.status();
  return id.ok() ? *id : TransferId{};
}

void TransportConformance::Closed(GrantId grant) {
  target_->CloseGrant(grant);
  std::vector<TransferCompletion> none;
  while (!target_->IsClosed(grant)) source_->Poll(0, std::chrono::milliseconds(1), &none);
}

std::map<TransferId, TransferCompletion> TransportConformance::Ended(
    const std::vector<TransferId>& ids) {
  std::map<TransferId, TransferCompletion> ended;
  std::vector<TransferCompletion> batch;
  while (ended.size() < ids.size()) {
    batch.clear();
    if (source_->Poll(7, kLong, &batch) == 0) break;
    for (auto& completion : batch) {
      EXPECT_TRUE(std::find(ids.begin(), ids.end(), completion.id) != ids.end());
      EXPECT_TRUE(ended.emplace(completion.id, completion).second) << "completed twice";
    }
  }
  EXPECT_EQ(ended.size(), ids.size());
  return ended;
}

void TransportConformance::PollUntilBroken() {
  std::vector<TransferCompletion> none;
  while (!source_->Inspect(peer_.id)->broken) source_->Poll(0, std::chrono::seconds(1), &none);
}

}  // namespace skein::engine
