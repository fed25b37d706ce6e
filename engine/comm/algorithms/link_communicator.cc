#include "engine/comm/algorithms/link_communicator.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

enum Operation : uint64_t {
  kAllReduce = 1,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSendRecv,
  kBroadcast
};

// Buffers up to this size go whole to all ranks: one step, where slices need two.
constexpr int64_t kWholeBytesMax = 16 << 10;
// Shorter broadcasts leave the root once for every rank; longer ones in parts that the ranks then
// exchange, so that not all ranks wait for the root's one wire.
constexpr size_t kBroadcastWholeMax = 64 << 10;

Signature Sign(Operation operation, uint64_t total) { return total * 8 + operation; }

Signature Sign(Operation operation, int64_t count, DType dtype) {
  return Sign(operation, static_cast<uint64_t>(count) * 4 + static_cast<uint64_t>(dtype));
}

// Both ends of a pair compute the same from what each sends and expects.
Signature SignPair(int rank, uint64_t sent, int peer, uint64_t expected) {
  const uint64_t up = rank < peer ? sent : expected;
  const uint64_t down = rank < peer ? expected : sent;
  return Sign(kAllToAll, up * 0x9e3779b97f4a7c15u + down);
}

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Of `part` when `total` elements are dealt evenly.
Range Share(int64_t total, int part, int parts) {
  const int64_t each = total / parts, more = total % parts;
  const int64_t begin = part * each + std::min<int64_t>(part, more);
  return {begin, begin + each + (part < more ? 1 : 0)};
}

// Its `index`-th stretch of `length`; empty behind the end.
Range Piece(Range range, int64_t index, int64_t length) {
  const int64_t begin = std::min(range.begin + index * length, range.end);
  return {begin, std::min(begin + length, range.end)};
}

// Receives one slice of elements from every rank, piece by piece, and sums it.
class SliceReducer {
 public:
  // `slices` of the elements at `data`, by rank that sums them. `out` receives the sum of this
  // rank's, and may be its own slice of `data`. `scratch` holds ScratchBytes: room for two pieces,
  // so that one may be summed while the next arrives.
  SliceReducer(Link* link, DType dtype, Signature signature, const std::byte* data,
               std::vector<Range> slices, std::byte* out, std::byte* scratch)
      : link_(link),
        dtype_(dtype),
        bytes_(static_cast<int64_t>(BytesOf(dtype))),
        piece_bytes_(link->Memory()->PieceBytes()),
        signature_(signature),
        data_(data),
        slices_(std::move(slices)),
        out_(out),
        scratch_(scratch) {}

  static size_t ScratchBytes(Link* link) {
    return static_cast<size_t>(2 * link->Size() * link->Memory()->PieceBytes());
  }

  int64_t Pieces() const {
    int64_t longest = 0;
    for (const Range& slice : slices_) longest = std::max(longest, slice.size());
    return std::max<int64_t>(1, (longest + PieceLength() - 1) / PieceLength());
  }

  Range PieceOf(int rank, int64_t piece) const {
    return Piece(slices_[rank], piece, PieceLength());
  }

  void Start(int64_t piece) {
    const int n = link_->Size(), rank = link_->Rank();
    for (int i = 1; i < n; ++i) {
      const int to = (rank + i) % n, from = (rank - i + n) % n;
      const Range range = PieceOf(to, piece);
      link_->Send(to, {data_ + range.begin * bytes_, Bytes(range)}, signature_);
      link_->Receive(from, {Place(from, piece), Bytes(PieceOf(rank, piece))}, signature_);
    }
  }

  void Sum(int64_t piece) {
    const int n = link_->Size(), rank = link_->Rank();
    const Range range = PieceOf(rank, piece);
    sources_.clear();
    for (int r = 0; r < n; ++r) {
      sources_.push_back(r == rank ? data_ + range.begin * bytes_ : Place(r, piece));
    }
    link_->Memory()->Sum(sources_, out_ + (range.begin - slices_[rank].begin) * bytes_,
                         range.size(), dtype_);
  }

 private:
  int64_t PieceLength() const { return piece_bytes_ / bytes_; }
  size_t Bytes(Range range) const { return static_cast<size_t>(range.size() * bytes_); }
  std::byte* Place(int rank, int64_t piece) const {
    return scratch_ + (piece % 2 * link_->Size() + rank) * piece_bytes_;
  }

  Link* const link_;
  const DType dtype_;
  const int64_t bytes_;  // of an element
  const int64_t piece_bytes_;
  const Signature signature_;
  const std::byte* const data_;
  const std::vector<Range> slices_;
  std::byte* const out_;
  std::byte* const scratch_;
  std::vector<const void*> sources_;
};

}  // namespace

absl::Status LinkCommunicator::Enter() {
  const absl::Status health = link_->Health();
  if (health.ok()) return health;
  return absl::UnavailableError(absl::StrCat("broken group: ", std::string(health.message())));
}

absl::StatusOr<std::byte*> LinkCommunicator::Scratch(size_t bytes) {
  auto scratch = link_->Memory()->Scratch(bytes);
  if (!scratch.ok()) link_->Abort(scratch.status());
  return scratch;
}

void LinkCommunicator::CopyUnlessSame(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty() && to != from.data()) link_->Memory()->Copy(to, from);
}

absl::Status LinkCommunicator::ReduceWhole(void* data, int64_t count, DType dtype,
                                           CommDeadline deadline) {
  const size_t bytes = static_cast<size_t>(count) * BytesOf(dtype);
  const Signature signature = Tagged(Sign(kAllReduce, count, dtype));
  auto* const own = static_cast<std::byte*>(data);
  const auto scratch = Scratch(bytes * Size());
  if (!scratch.ok()) return scratch.status();
  std::byte* const others = *scratch;
  for (int i = 1; i < Size(); ++i) {
    link_->Send(Peer(i), {own, bytes}, signature);
    link_->Receive(Peer(-i), {others + Peer(-i) * bytes, bytes}, signature);
  }
  auto status = link_->Wait(deadline);
  if (!status.ok()) return status;
  std::vector<const void*> sources;
  for (int r = 0; r < Size(); ++r) sources.push_back(r == Rank() ? own : others + r * bytes);
  link_->Memory()->Sum(sources, data, count, dtype);
  return link_->Wait(deadline);
}

absl::Status LinkCommunicator::AllReduce(void* data, int64_t count, DType dtype,
                                         CommDeadline deadline) {
  SKEIN_CHECK(count >= 0);
  if (auto status = Enter(); !status.ok() || Size() == 1) return status;
  const int64_t element = static_cast<int64_t>(BytesOf(dtype));
  if (count * element <= kWholeBytesMax) return ReduceWhole(data, count, dtype, deadline);

  auto* const bytes = static_cast<std::byte*>(data);
  const Signature signature = Tagged(Sign(kAllReduce, count, dtype));
  std::vector<Range> slices;
  for (int r = 0; r < Size(); ++r) slices.push_back(Share(count, r, Size()));
  const auto scratch = Scratch(SliceReducer::ScratchBytes(link_.get()));
  if (!scratch.ok()) return scratch.status();
  SliceReducer reducer(link_.get(), dtype, signature, bytes, slices,
                       bytes + slices[Rank()].begin * element, *scratch);
  const auto span_of = [&](Range range) {
    return std::span(bytes + range.begin * element, static_cast<size_t>(range.size() * element));
  };
  // While a piece is summed the parts of the next are on their way.
  const int64_t pieces = reducer.Pieces();
  reducer.Start(0);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    auto status = link_->Wait(deadline);
    if (!status.ok()) return status;
    if (piece + 1 < pieces) reducer.Start(piece + 1);
    reducer.Sum(piece);
    for (int i = 1; i < Size(); ++i) {
      link_->Send(Peer(i), span_of(reducer.PieceOf(Rank(), piece)), signature);
      link_->Receive(Peer(-i), span_of(reducer.PieceOf(Peer(-i), piece)), signature);
    }
  }
  return link_->Wait(deadline);
}

absl::Status LinkCommunicator::ReduceScatter(const void* send, void* receive, int64_t count,
                                             DType dtype, CommDeadline deadline) {
  SKEIN_CHECK(count >= 0);
  if (auto status = Enter(); !status.ok()) return status;
  std::vector<Range> slices;
  for (int r = 0; r < Size(); ++r) slices.push_back({r * count, (r + 1) * count});
  const auto scratch = Scratch(SliceReducer::ScratchBytes(link_.get()));
  if (!scratch.ok()) return scratch.status();
  SliceReducer reducer(link_.get(), dtype, Tagged(Sign(kReduceScatter, count, dtype)),
                       static_cast<const std::byte*>(send), std::move(slices),
                       static_cast<std::byte*>(receive), *scratch);
  const int64_t pieces = reducer.Pieces();
  reducer.Start(0);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    if (auto status = link_->Wait(deadline); !status.ok()) return status;
    if (piece + 1 < pieces) reducer.Start(piece + 1);
    reducer.Sum(piece);
  }
  return link_->Wait(deadline);
}

absl::Status LinkCommunicator::AllGather(std::span<const std::byte> send,
                                         std::span<std::byte> receive, CommDeadline deadline) {
  SKEIN_CHECK(receive.size() == send.size() * static_cast<size_t>(Size()));
  if (auto status = Enter(); !status.ok()) return status;
  const auto place = [&](int rank) { return receive.subspan(rank * send.size(), send.size()); };
  const Signature signature = Tagged(Sign(kAllGather, send.size()));
  for (int i = 1; i < Size(); ++i) {
    link_->Send(Peer(i), send, signature);
    link_->Receive(Peer(-i), place(Peer(-i)), signature);
  }
  CopyUnlessSame(place(Rank()).data(), send);
  return link_->Wait(deadline);
}

absl::Status LinkCommunicator::AllToAll(std::span<const std::span<const std::byte>> send,
                                        std::span<const std::span<std::byte>> receive,
                                        CommDeadline deadline) {
  SKEIN_CHECK(send.size() == static_cast<size_t>(Size()) && receive.size() == send.size());
  if (auto status = Enter(); !status.ok()) return status;
  const int rank = Rank();
  if (send[rank].size() != receive[rank].size()) {
    const auto status = absl::InternalError(absl::StrCat("AllToAll: rank ", rank, " sends itself ",
                                                         send[rank].size(), " bytes, expects ",
                                                         receive[rank].size()));
    link_->Abort(status);
    return status;
  }
  for (int i = 1; i < Size(); ++i) {
    const int to = Peer(i), from = Peer(-i);
    link_->Send(to, send[to], Tagged(SignPair(rank, send[to].size(), to, receive[to].size())));
    link_->Receive(from, receive[from],
                   Tagged(SignPair(rank, send[from].size(), from, receive[from].size())));
  }
  CopyUnlessSame(receive[rank].data(), send[rank]);
  return link_->Wait(deadline);
}

absl::Status LinkCommunicator::SendRecv(std::span<const std::byte> send, int to,
                                        std::span<std::byte> receive, int from,
                                        CommDeadline deadline) {
  const auto valid = [&](int peer) { return peer >= 0 && peer < Size(); };
  SKEIN_CHECK((send.empty() || valid(to)) && (receive.empty() || valid(from)));
  if (auto status = Enter(); !status.ok()) return status;
  const bool to_self = !send.empty() && to == Rank();
  const bool from_self = !receive.empty() && from == Rank();
  SKEIN_CHECK(to_self == from_self && (!to_self || send.size() == receive.size()));
  if (to_self) {
    CopyUnlessSame(receive.data(), send);
    return link_->Wait(deadline);
  }
  if (!send.empty()) link_->Send(to, send, Tagged(Sign(kSendRecv, 0)));
  if (!receive.empty()) link_->Receive(from, receive, Tagged(Sign(kSendRecv, 0)));
  return link_->Wait(deadline);
}

absl::Status LinkCommunicator::Broadcast(std::span<std::byte> data, int root,
                                         CommDeadline deadline) {
  SKEIN_CHECK(root >= 0 && root < Size());
  if (auto status = Enter(); !status.ok()) return status;
  const Signature signature = Tagged(Sign(kBroadcast, data.size()));
  const bool whole = Size() == 2 || data.size() <= kBroadcastWholeMax;
  const auto part = [&](int rank) {
    const Range range = Share(static_cast<int64_t>(data.size()), rank, Size());
    return data.subspan(range.begin, range.size());
  };
  // From the root: everything, or each rank's part.
  if (Rank() == root) {
    for (int i = 1; i < Size(); ++i) {
      link_->Send(Peer(i), whole ? data : part(Peer(i)), signature);
      if (!whole) link_->Send(Peer(i), part(root), signature);
    }
    return link_->Wait(deadline);
  }
  link_->Receive(root, whole ? data : part(Rank()), signature);
  if (!whole) link_->Receive(root, part(root), signature);
  auto status = link_->Wait(deadline);
  if (whole || !status.ok()) return status;
  for (int i = 1; i < Size(); ++i) {
    if (Peer(i) != root) link_->Send(Peer(i), part(Rank()), signature);
    if (Peer(-i) != root) link_->Receive(Peer(-i), part(Peer(-i)), signature);
  }
  return link_->Wait(deadline);
}

}  // namespace skein::engine
