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
  while (!connections_.empty()) Close(connections_.begin()->first);
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
  Connection& connection = connections_[*endpoint];
  const std::optional<UcxAddress> address = OpenAddress(worker_address);
  connection.near = address.has_value() && IsNear(*address) && inner_->Grants()->Asks(*endpoint);
  connection.own = address.has_value() && address->process == ThisProcess();
  return endpoint;
}

absl::StatusOr<uint64_t> DirectWire::Import(uint64_t endpoint, const DescribedRegion& region) {
  const absl::StatusOr<uint64_t> inner = inner_->Import(endpoint, region);
  if (!inner.ok()) return inner;
  Connection& connection = connections_.at(endpoint);
  connection.remotes.push_back({*inner, region.address, OpenRegion(&connection, region)});
  return reinterpret_cast<uint64_t>(&connection.remotes.back());
}

// Null: it is for the inner wire.
std::shared_ptr<std::byte> DirectWire::OpenRegion(Connection* connection,
                                                  const DescribedRegion& region) {
  std::string key = region.key;
  const std::optional<RegionExport> exported = TakeExport(&key);
  if (!connection->near || !exported.has_value() ||
      !IsSound(*exported, region.address, region.bytes)) {
    return nullptr;
  }
  // Another process that claims a place in our memory is not believed.
  const bool own = exported->place.process == opener_->Process();
  if (own != connection->own) return nullptr;
  absl::StatusOr<std::shared_ptr<std::byte>> opened = opener_->Open(exported->place);
  if (opened.ok()) return *std::move(opened);
  if (connection->refusal.empty()) connection->refusal = std::string(opened.status().message());
  return nullptr;
}

void DirectWire::Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
                       WireTicket* ticket) {
  Connection& connection = connections_.at(endpoint);
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
  if (rest.size() < pieces.size()) StartCopies(&connection, between_devices, with_host, ticket);
  if (rest.empty()) return;
  connection.inner = true;
  inner_->Start(endpoint, op, rest, ticket);
}

void DirectWire::StartCopies(Connection* connection, std::span<const CopyPiece> between_devices,
                             std::span<const CopyPiece> with_host, WireTicket* ticket) {
  connection->direct = true;
  const absl::StatusOr<uint64_t> mark = Queue(between_devices, with_host);
  if (!mark.ok()) {
    (void)AwaitCopies(copies_.get());  // of those that were queued
    Fail(connection, ticket, mark.status());
    return;
  }
  Job job{*mark, 0, ticket};
  for (const CopyPiece& piece : between_devices) job.bytes += piece.bytes;
  for (const CopyPiece& piece : with_host) job.bytes += piece.bytes;
  Add(connection, job);
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
  Connection& connection = connections_.at(endpoint);
  if (!connection.jobs.empty()) Add(&connection, {connection.jobs.back().mark, 0, ticket});
  inner_->Flush(endpoint, ticket);
}

void DirectWire::Add(Connection* connection, const Job& job) {
  ++job.ticket->in_flight;
  job.ticket->bytes_in_flight += job.bytes;
  connection->jobs.push_back(job);
}

void DirectWire::EndFirst(Connection* connection, const absl::Status& status) {
  const Job& job = connection->jobs.front();
  --job.ticket->in_flight;
  job.ticket->bytes_in_flight -= job.bytes;
  if (!status.ok()) Fail(connection, job.ticket, status);
  connection->jobs.pop_front();
}

void DirectWire::Fail(Connection* connection, WireTicket* ticket, const absl::Status& status) {
  const absl::Status error =
      absl::UnavailableError(absl::StrCat("copies between devices failed: ", status.message()));
  if (connection->health.ok()) connection->health = error;
  if (ticket->error.ok()) ticket->error = error;
}

bool DirectWire::Progress() {
  bool moved = inner_->Progress();
  for (auto& [endpoint, connection] : connections_) moved |= Advance(&connection);
  return moved;
}

// True if copies ended, or run.
bool DirectWire::Advance(Connection* connection) {
  const bool any = !connection->jobs.empty();
  while (!connection->jobs.empty()) {
    const absl::StatusOr<bool> done = copies_->Done(connection->jobs.front().mark);
    if (done.ok() && !*done) break;
    EndFirst(connection, done.status());
  }
  return any;
}

absl::Status DirectWire::Health(uint64_t endpoint) {
  const Connection& connection = connections_.at(endpoint);
  return connection.health.ok() ? inner_->Health(endpoint) : connection.health;
}

std::string DirectWire::TransportName(uint64_t endpoint) {
  const Connection& connection = connections_.at(endpoint);
  if (connection.direct && !connection.inner) return opener_->Name();
  const std::string inner = inner_->TransportName(endpoint);
  if (connection.direct) return absl::StrCat(opener_->Name(), ",", inner);
  if (connection.refusal.empty()) return inner;
  return absl::StrCat(inner, " (not ", opener_->Name(), ": ", connection.refusal, ")");
}

TransferPath DirectWire::Path(uint64_t endpoint) {
  const Connection& connection = connections_.at(endpoint);
  return connection.direct && !connection.inner ? TransferPath::kDirect : inner_->Path(endpoint);
}

std::string DirectWire::WhyNotFaster(uint64_t endpoint) {
  const Connection& connection = connections_.at(endpoint);
  if (connection.direct && !connection.inner) return "";
  return connection.refusal.empty() ? inner_->WhyNotFaster(endpoint) : connection.refusal;
}

void DirectWire::Close(uint64_t endpoint) {
  Connection connection = std::move(connections_.extract(endpoint).mapped());
  if (!connection.jobs.empty()) (void)AwaitMark(copies_.get(), connection.jobs.back().mark);
  while (!connection.jobs.empty())
    EndFirst(&connection, absl::UnavailableError("the connection was closed"));
  inner_->Close(endpoint);  // tells the peer that nothing is written any more
}

}  // namespace skein::engine
