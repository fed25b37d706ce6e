#include "engine/transport/device/direct_wire.h"

#include "absl/strings/str_cat.h"
#include "engine/host/process_watch.h"
#include "engine/transport/device/region_export.h"
#include "engine/ucx/ucx_address.h"

namespace skein::engine {
namespace {

// And without a connection of UCX: over tcp that may end its target when it is closed early
// (ucx_transport.h), which copies that need nothing of the target would make likely.
bool IsNear(const UcxAddress& address) {
  return !address.host.empty() && VisibleProcess(address.process).has_value();
}

}  // namespace

DirectWire::~DirectWire() {
  while (!lanes_.empty()) Close(lanes_.begin()->first);
}

absl::StatusOr<WireMapping> DirectWire::Map(void* base, size_t bytes) {
  absl::StatusOr<WireMapping> mapping = inner_->Map(base, bytes);
  if (!mapping.ok() || base == nullptr || !copies_->IsDevice(base)) return mapping;
  device_regions_.Add(mapping->handle, base, bytes);
  const absl::StatusOr<PeerPlace> place = opener_->Export(base);
  if (!place.ok()) return mapping;
  const RegionExport region{*place, reinterpret_cast<uint64_t>(base), bytes};
  if (IsSound(region, region.address, bytes)) AppendExport(region, &mapping->key);
  return mapping;
}

void DirectWire::Unmap(uint64_t mapping) {
  device_regions_.Remove(mapping);
  inner_->Unmap(mapping);
}

absl::StatusOr<uint64_t> DirectWire::Open(const std::string& worker_address) {
  const absl::StatusOr<uint64_t> endpoint = inner_->Open(worker_address);
  if (!endpoint.ok()) return endpoint;
  Lane& lane = lanes_[*endpoint];
  const std::optional<UcxAddress> address = OpenAddress(worker_address);
  lane.near = address.has_value() && IsNear(*address) && inner_->Grants()->Asks(*endpoint);
  lane.own = address.has_value() && address->process == ThisProcess();
  return endpoint;
}

absl::StatusOr<uint64_t> DirectWire::Import(uint64_t endpoint, const DescribedRegion& region) {
  const absl::StatusOr<uint64_t> inner = inner_->Import(endpoint, region);
  if (!inner.ok()) return inner;
  Lane& lane = lanes_.at(endpoint);
  lane.remotes.push_back({*inner, region.address, OpenRegion(&lane, region)});
  return reinterpret_cast<uint64_t>(&lane.remotes.back());
}

// Null: it is for the inner wire.
std::shared_ptr<std::byte> DirectWire::OpenRegion(Lane* lane, const DescribedRegion& region) {
  std::string key = region.key;
  const std::optional<RegionExport> exported = TakeExport(&key);
  if (!lane->near || !exported.has_value() || !IsSound(*exported, region.address, region.bytes)) {
    return nullptr;
  }
  // Another process that claims a place in our memory is not believed.
  const bool own = exported->place.process == opener_->Process();
  if (own != lane->own) return nullptr;
  absl::StatusOr<std::shared_ptr<std::byte>> opened = opener_->Open(exported->place);
  if (opened.ok()) return *std::move(opened);
  if (lane->refusal.empty()) lane->refusal = std::string(opened.status().message());
  return nullptr;
}

void DirectWire::Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
                       WireTicket* ticket) {
  Lane& lane = lanes_.at(endpoint);
  std::vector<CopyPiece> between_devices, with_host;
  std::vector<WirePiece> rest;
  for (WirePiece piece : pieces) {
    const auto& remote = *reinterpret_cast<const Remote*>(piece.key);
    if (remote.opened == nullptr) {
      piece.key = remote.inner;
      rest.push_back(piece);
      continue;
    }
    std::byte* const place = remote.opened.get() + (piece.remote - remote.address);
    const CopyPiece copy = op == TransferOp::kPut ? CopyPiece{place, piece.local, piece.bytes}
                                                  : CopyPiece{piece.local, place, piece.bytes};
    (device_regions_.Hold(piece.local) ? between_devices : with_host).push_back(copy);
  }
  if (rest.size() < pieces.size()) StartCopies(&lane, between_devices, with_host, ticket);
  if (rest.empty()) return;
  lane.inner = true;
  inner_->Start(endpoint, op, rest, ticket);
}

void DirectWire::StartCopies(Lane* lane, std::span<const CopyPiece> between_devices,
                             std::span<const CopyPiece> with_host, WireTicket* ticket) {
  lane->direct = true;
  const absl::StatusOr<uint64_t> mark = Queue(between_devices, with_host);
  if (!mark.ok()) {
    (void)AwaitCopies(copies_.get());  // of those that were queued
    Fail(lane, ticket, mark.status());
    return;
  }
  Job job{*mark, 0, ticket};
  for (const CopyPiece& piece : between_devices) job.bytes += piece.bytes;
  for (const CopyPiece& piece : with_host) job.bytes += piece.bytes;
  Add(lane, job);
}

absl::StatusOr<uint64_t> DirectWire::Queue(std::span<const CopyPiece> between_devices,
                                           std::span<const CopyPiece> with_host) {
  absl::Status status = copies_->CopyPieces(between_devices);
  for (const CopyPiece& piece : with_host) {
    if (status.ok()) status = copies_->Copy(piece.to, piece.from, piece.bytes);
  }
  if (!status.ok()) return status;
  return copies_->Mark();
}

void DirectWire::Flush(uint64_t endpoint, WireTicket* ticket) {
  Lane& lane = lanes_.at(endpoint);
  if (!lane.jobs.empty()) Add(&lane, {lane.jobs.back().mark, 0, ticket});
  inner_->Flush(endpoint, ticket);
}

void DirectWire::Add(Lane* lane, const Job& job) {
  ++job.ticket->in_flight;
  job.ticket->bytes_in_flight += job.bytes;
  lane->jobs.push_back(job);
}

void DirectWire::EndFirst(Lane* lane, const absl::Status& status) {
  const Job& job = lane->jobs.front();
  --job.ticket->in_flight;
  job.ticket->bytes_in_flight -= job.bytes;
  if (!status.ok()) Fail(lane, job.ticket, status);
  lane->jobs.pop_front();
}

void DirectWire::Fail(Lane* lane, WireTicket* ticket, const absl::Status& status) {
  const absl::Status error =
      absl::UnavailableError(absl::StrCat("copies between devices failed: ", status.message()));
  if (lane->health.ok()) lane->health = error;
  if (ticket->error.ok()) ticket->error = error;
}

bool DirectWire::Progress() {
  bool moved = inner_->Progress();
  for (auto& [endpoint, lane] : lanes_) moved |= Advance(&lane);
  return moved;
}

// True if copies ended, or run.
bool DirectWire::Advance(Lane* lane) {
  const bool any = !lane->jobs.empty();
  while (!lane->jobs.empty()) {
    const absl::StatusOr<bool> done = copies_->Done(lane->jobs.front().mark);
    if (done.ok() && !*done) break;
    EndFirst(lane, done.status());
  }
  return any;
}

absl::Status DirectWire::Health(uint64_t endpoint) {
  const Lane& lane = lanes_.at(endpoint);
  return lane.health.ok() ? inner_->Health(endpoint) : lane.health;
}

std::string DirectWire::Lanes(uint64_t endpoint) {
  const Lane& lane = lanes_.at(endpoint);
  if (lane.direct && !lane.inner) return opener_->Name();
  const std::string inner = inner_->Lanes(endpoint);
  if (lane.direct) return absl::StrCat(opener_->Name(), ",", inner);
  if (lane.refusal.empty()) return inner;
  return absl::StrCat(inner, " (not ", opener_->Name(), ": ", lane.refusal, ")");
}

TransferPath DirectWire::Path(uint64_t endpoint) {
  const Lane& lane = lanes_.at(endpoint);
  return lane.direct && !lane.inner ? TransferPath::kDirect : inner_->Path(endpoint);
}

std::string DirectWire::WhyNotFaster(uint64_t endpoint) {
  const Lane& lane = lanes_.at(endpoint);
  if (lane.direct && !lane.inner) return "";
  return lane.refusal.empty() ? inner_->WhyNotFaster(endpoint) : lane.refusal;
}

void DirectWire::Close(uint64_t endpoint) {
  Lane lane = std::move(lanes_.extract(endpoint).mapped());
  if (!lane.jobs.empty()) (void)AwaitMark(copies_.get(), lane.jobs.back().mark);
  while (!lane.jobs.empty()) EndFirst(&lane, absl::UnavailableError("the connection was closed"));
  inner_->Close(endpoint);  // tells the peer that nothing is written any more
}

}  // namespace skein::engine
