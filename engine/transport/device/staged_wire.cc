#include "engine/transport/device/staged_wire.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr size_t kSlotBytes = 960 << 10;  // of what PeerQueue starts together
constexpr size_t kSlotsOfPeer = 2;

}  // namespace

StagedWire::StagedWire(std::unique_ptr<Wire> inner, std::shared_ptr<CopyStream> copies)
    : inner_(std::move(inner)), copies_(std::move(copies)) {}

StagedWire::~StagedWire() {
  while (!connections_.empty()) Close(connections_.begin()->first);
  // Before the slots go: nobody reads them any more.
  inner_.reset();
}

absl::StatusOr<WireMapping> StagedWire::Map(void* base, size_t bytes) {
  absl::StatusOr<WireMapping> mapping = inner_->Map(base, bytes);
  if (mapping.ok() && base != nullptr && copies_->IsDevice(base)) {
    device_regions_.Add(mapping->handle, base, bytes);
  }
  return mapping;
}

void StagedWire::Unmap(uint64_t mapping) {
  device_regions_.Remove(mapping);
  inner_->Unmap(mapping);
}

StagedWire::Connection& StagedWire::ConnectionOf(uint64_t endpoint) {
  Connection& connection = connections_[endpoint];
  if (connection.slots != nullptr) return connection;
  if (spare_slots_.empty()) {
    connection.slots = std::make_unique<PinnedSlots>(copies_, kSlotBytes, kSlotsOfPeer);
  } else {
    connection.slots = std::move(spare_slots_.back());
    spare_slots_.pop_back();
  }
  return connection;
}

void StagedWire::Add(Connection* connection, Job job) {
  ++job.ticket->in_flight;
  job.ticket->bytes_in_flight += job.bytes;
  job.inner.grant = job.ticket->grant;
  connection->jobs.push_back(std::move(job));
}

void StagedWire::Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
                       WireTicket* ticket) {
  const Kind kind = op == TransferOp::kPut ? Kind::kPut : Kind::kGet;
  std::vector<WirePiece> plain;
  Job job{.kind = kind, .ticket = ticket};
  for (WirePiece piece : pieces) {
    if (!device_regions_.Hold(piece.local)) {
      plain.push_back(piece);
      continue;
    }
    while (piece.bytes > 0) {
      WirePiece part = piece;
      part.bytes = std::min<uint64_t>(piece.bytes, kSlotBytes - job.bytes);
      job.pieces.push_back(part);
      job.bytes += part.bytes;
      piece.local += part.bytes;
      piece.remote += part.bytes;
      piece.bytes -= part.bytes;
      if (job.bytes == kSlotBytes) {
        Add(&ConnectionOf(endpoint), std::exchange(job, Job{.kind = kind, .ticket = ticket}));
      }
    }
  }
  if (job.bytes > 0) Add(&ConnectionOf(endpoint), std::move(job));
  if (!plain.empty()) inner_->Start(endpoint, op, plain, ticket);
}

void StagedWire::Flush(uint64_t endpoint, WireTicket* ticket) {
  const auto connection = connections_.find(endpoint);
  if (connection == connections_.end() || connection->second.jobs.empty())
    return inner_->Flush(endpoint, ticket);
  Add(&connection->second, {.kind = Kind::kFlush, .ticket = ticket});
}

bool StagedWire::Progress() {
  bool moved = inner_->Progress();
  for (auto& [endpoint, connection] : connections_) {
    bool puts_wait = false;  // one before this job is not on the wire yet
    for (auto it = connection.jobs.begin(); it != connection.jobs.end();) {
      const auto job = it++;
      moved |= Advance(endpoint, &connection, &*job, puts_wait);
      puts_wait |= job->kind == Kind::kPut && job->stage < Stage::kOnWire;
      if (job->stage != Stage::kDone) continue;
      End(&connection, &*job);
      connection.jobs.erase(job);
    }
  }
  return moved;
}

// True if anything changed, or a copy runs.
bool StagedWire::Advance(uint64_t endpoint, Connection* connection, Job* job, bool puts_wait) {
  switch (job->stage) {
    case Stage::kWaits:
      if (job->kind == Kind::kFlush) {
        if (puts_wait) return false;
        inner_->Flush(endpoint, &job->inner);
        job->stage = Stage::kOnWire;
        return true;
      }
      return Begin(endpoint, connection, job);
    case Stage::kCopiesOut:
      if (Copied(job)) StartInner(endpoint, job);
      return true;
    case Stage::kOnWire:
      return LeaveWire(job);
    case Stage::kCopiesIn:
      if (Copied(job)) job->stage = Stage::kDone;
      return true;
    case Stage::kDone:
      return false;
  }
  return false;
}

// Once there is a slot.
bool StagedWire::Begin(uint64_t endpoint, Connection* connection, Job* job) {
  const absl::StatusOr<std::byte*> slot = connection->slots->Take();
  if (!slot.ok()) {
    Fail(job, slot.status());
    return true;
  }
  if (*slot == nullptr) return false;
  job->slot = *slot;
  if (job->kind == Kind::kGet) {
    StartInner(endpoint, job);
  } else if (Copy(job)) {
    job->stage = Stage::kCopiesOut;
  }
  return true;
}

void StagedWire::StartInner(uint64_t endpoint, Job* job) {
  if (job->stage == Stage::kDone) return;  // its copies failed
  std::vector<WirePiece> staged = job->pieces;
  std::byte* at = job->slot;
  for (WirePiece& piece : staged) {
    piece.local = at;
    at += piece.bytes;
  }
  const TransferOp op = job->kind == Kind::kPut ? TransferOp::kPut : TransferOp::kGet;
  job->stage = Stage::kOnWire;
  inner_->Start(endpoint, op, staged, &job->inner);
}

bool StagedWire::LeaveWire(Job* job) {
  if (job->inner.in_flight > 0) return false;
  if (!job->inner.error.ok()) {
    Fail(job, job->inner.error);
  } else if (job->kind != Kind::kGet) {
    job->stage = Stage::kDone;
  } else if (Copy(job)) {
    job->stage = Stage::kCopiesIn;
  }
  return true;
}

bool StagedWire::Copy(Job* job) {
  std::vector<CopyPiece> pieces;
  std::byte* at = job->slot;
  for (const WirePiece& piece : job->pieces) {
    const bool put = job->kind == Kind::kPut;
    pieces.push_back(put ? CopyPiece{at, piece.local, piece.bytes}
                         : CopyPiece{piece.local, at, piece.bytes});
    at += piece.bytes;
  }
  absl::Status status = copies_->CopyPieces(pieces);
  const absl::StatusOr<uint64_t> mark = copies_->Mark();
  if (mark.ok()) job->mark = *mark;
  if (status.ok()) status = mark.status();
  if (status.ok()) return true;
  (void)AwaitCopies(copies_.get());  // of those that were queued
  Fail(job, std::move(status));
  return false;
}

bool StagedWire::Copied(Job* job) {
  const absl::StatusOr<bool> done = copies_->Done(job->mark);
  if (!done.ok()) Fail(job, done.status());
  return !done.ok() || *done;
}

void StagedWire::Fail(Job* job, absl::Status status) {
  job->inner.error = std::move(status);
  job->stage = Stage::kDone;
}

void StagedWire::End(Connection* connection, Job* job) {
  if (job->slot != nullptr) connection->slots->GiveBack(job->slot);
  --job->ticket->in_flight;
  job->ticket->bytes_in_flight -= job->bytes;
  if (job->ticket->error.ok()) job->ticket->error = job->inner.error;
}

std::string StagedWire::WhyNotFaster(uint64_t endpoint) {
  const std::string inner = inner_->WhyNotFaster(endpoint);
  if (Path(endpoint) != TransferPath::kHostStaged) return inner;
  return absl::StrCat("no process may open the memory of the other one's device",
                      inner.empty() ? "" : "; ", inner);
}

void StagedWire::Close(uint64_t endpoint) {
  inner_->Close(endpoint);  // ends what is on the wire
  const auto connection = connections_.find(endpoint);
  if (connection == connections_.end()) return;
  for (Job& job : connection->second.jobs) {
    const bool copies = job.stage == Stage::kCopiesOut || job.stage == Stage::kCopiesIn;
    if (copies) (void)AwaitMark(copies_.get(), job.mark);
    if (job.inner.error.ok()) {
      job.inner.error = absl::UnavailableError("the connection was closed");
    }
    End(&connection->second, &job);
  }
  spare_slots_.push_back(std::move(connection->second.slots));
  connections_.erase(connection);
}

}  // namespace skein::engine
