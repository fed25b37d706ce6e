#include "engine/model/sharing/compute_calls.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/layers/local_feed_forward.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

enum class Kind : int32_t {
  kCall,
  kAnswer,
  kProbe,  // by one that waits no more: tell me when what I called before is done
  kLeft,   // serves no more
};

constexpr int32_t kOk = 0;
constexpr int32_t kRefused = 1;  // not an owner's layer, or rows that are none

int64_t RowsOf(const CallShape& shape, int fused_calls_max) {
  return std::min(shape.ranks, fused_calls_max) * shape.rows_max;
}

// Of the serving thread's buffers: normed, projected, gate_up, ffn.
std::array<std::pair<DType, int64_t>, 4> ColumnsOf(const CallShape& shape,
                                                   const ModelConfig& config) {
  return {{{shape.activation, shape.hidden},
           {DType::kF32, shape.hidden},
           {DType::kF32, 2 * config.intermediate_size},
           {shape.activation, config.intermediate_size}}};
}

}  // namespace

struct ComputeCalls::Message {
  Kind kind = Kind::kCall;
  int32_t layer = 0;
  uint64_t number = 0;
  int32_t rows = 0;
  int32_t spans = 0;
  int32_t code = kOk;
  int32_t padding = 0;
};

struct ComputeCalls::Pending {
  int rank = 0;
  Message message;
};

ComputeCalls::ComputeCalls(Options options, std::unique_ptr<RankWire> wire,
                           std::vector<std::unique_ptr<CallAreas>> areas,
                           std::shared_ptr<CallCounts> counts)
    : options_(std::move(options)),
      wire_(std::move(wire)),
      areas_(std::move(areas)),
      counts_(std::move(counts)),
      model_{.config = options_.config,
             .weights = nullptr,
             .kv = nullptr,
             .rope = {},
             .ops = options_.ops},
      peers_(static_cast<size_t>(options_.shape.ranks)) {}

absl::StatusOr<std::unique_ptr<ComputeCalls>> ComputeCalls::Make(
    Options options, std::unique_ptr<RankWire> wire, std::vector<std::unique_ptr<CallAreas>> areas,
    std::shared_ptr<CallCounts> counts) {
  std::unique_ptr<ComputeCalls> calls(
      new ComputeCalls(std::move(options), std::move(wire), std::move(areas), std::move(counts)));
  absl::Status allocated = calls->AllocateBuffers();
  if (!allocated.ok()) return allocated;
  calls->server_ = std::thread([c = calls.get()] { c->Serve(); });
  return calls;
}

int64_t ComputeCalls::BufferBytes(const CallShape& shape, const ModelConfig& config) {
  int64_t bytes = 0;
  for (const auto& [dtype, cols] : ColumnsOf(shape, config)) {
    const auto rows = static_cast<size_t>(RowsOf(shape, kFusedCallsMax));
    bytes += static_cast<int64_t>(DeviceBytes(rows * static_cast<size_t>(cols) * BytesOf(dtype)));
  }
  return bytes;
}

absl::Status ComputeCalls::AllocateBuffers() {
  const int64_t rows = RowsOf(options_.shape, options_.fused_calls_max);
  const auto columns = ColumnsOf(options_.shape, *options_.config);
  Matrix* const matrices[] = {&state_.normed, &state_.projected, &state_.gate_up, &state_.ffn};
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto [dtype, cols] = columns[i];
    auto buffer =
        DeviceBuffer::Allocate(options_.device, static_cast<size_t>(rows * cols) * BytesOf(dtype));
    if (!buffer.ok()) return buffer.status();
    *matrices[i] = {buffer->data(), dtype, rows, cols, cols};
    state_.owned.push_back(*std::move(buffer));
  }
  return absl::OkStatus();
}

ComputeCalls::~ComputeCalls() {
  {
    std::lock_guard lock(mu_);
    stop_ = true;
  }
  wire_->Wake();
  if (server_.joinable()) server_.join();
}

bool ComputeCalls::Reaches(int owner) {
  std::lock_guard lock(mu_);
  Peer& peer = peers_[static_cast<size_t>(owner)];
  if (peer.gone) return false;
  if (!peer.owes()) return true;
  // Again and again: one that had not joined yet has not heard the call, nor an early probe.
  if (const auto now = Clock::now(); now - peer.probed >= options_.answer_max) {
    peer.probed = now;
    Send(owner, {.kind = Kind::kProbe, .number = peer.called});
  }
  return false;
}

absl::Status ComputeCalls::Call(int owner, int layer, const Batch& rows, const Matrix& out) {
  const int64_t tokens = rows.tokens();
  SKEIN_CHECK(tokens >= 1 && tokens <= options_.shape.rows_max);
  const std::span<int32_t> spans = Areas(options_.rank).Spans(owner);
  size_t count = 0;
  for (const SequenceSpan& span : rows.sequences) {
    spans[count++] = static_cast<int32_t>(span.token_count);
  }
  for (int64_t i = 0; i < rows.padding; ++i) spans[count++] = 1;
  std::unique_lock lock(mu_);
  Peer& peer = peers_[static_cast<size_t>(owner)];
  const uint64_t number = ++peer.called;
  Send(owner, {.kind = Kind::kCall,
               .layer = layer,
               .number = number,
               .rows = static_cast<int32_t>(tokens),
               .spans = static_cast<int32_t>(count)});
  const auto ended = [&] { return peer.answered == number || peer.gone; };
  const bool in_time = changed_.wait_until(lock, Clock::now() + options_.answer_max, ended);
  if (peer.answered != number || peer.code != kOk) {
    peer.probed = Clock::now();
    ++counts_->given_up;
    const char* const why = !in_time    ? "did not answer in time"
                            : peer.gone ? "has ended or has left"
                                        : "refused the call";
    return absl::UnavailableError(absl::StrCat("owner ", owner, " of layer ", layer, " ", why));
  }
  lock.unlock();
  const Matrix from = Areas(options_.rank).Out(owner, tokens);
  for (int64_t row = 0; row < tokens; ++row) {
    std::memcpy(static_cast<float*>(out.data) + row * out.stride,
                static_cast<const float*>(from.data) + row * from.stride,
                static_cast<size_t>(out.cols) * sizeof(float));
  }
  if (owner != options_.rank) counts_->rows_sent[static_cast<size_t>(layer)] += tokens;
  return absl::OkStatus();
}

// Its own serving thread takes what a rank sends to itself from the same list.
void ComputeCalls::Send(int to, const Message& message) {
  std::string text(reinterpret_cast<const char*>(&message), sizeof message);
  outgoing_.emplace_back(to, std::move(text));
  wire_->Wake();
}

void ComputeCalls::Serve() {
  for (;;) {
    const auto until = pending_.empty() ? Clock::now() + std::chrono::seconds(10) : Clock::now();
    for (const RankWire::Arrival& arrival : wire_->Wait(until)) Take(arrival);
    std::vector<std::pair<int, std::string>> outgoing;
    {
      std::lock_guard lock(mu_);
      if (stop_) break;
      outgoing.swap(outgoing_);
    }
    for (auto& [rank, message] : outgoing) {
      if (rank == options_.rank) {
        Take({.rank = rank, .message = std::move(message)});
      } else {
        wire_->Send(rank, std::move(message));
        ++counts_->messages;
      }
    }
    if (!pending_.empty()) ServeFirst();
  }
  const Message left = {.kind = Kind::kLeft};
  for (int rank = 0; rank < options_.shape.ranks; ++rank) {
    if (rank == options_.rank) continue;
    wire_->Send(rank, std::string(reinterpret_cast<const char*>(&left), sizeof left));
  }
}

void ComputeCalls::Take(const RankWire::Arrival& arrival) {
  Message message;
  if (arrival.died) message.kind = Kind::kLeft;
  if (!arrival.died && arrival.message.size() != sizeof message) return;
  if (!arrival.died) std::memcpy(&message, arrival.message.data(), sizeof message);
  switch (message.kind) {
    case Kind::kCall:
    case Kind::kProbe:
      pending_.push_back({arrival.rank, message});
      return;
    case Kind::kAnswer:
      NoteAnswer(arrival.rank, message.number, message.code);
      return;
    case Kind::kLeft: {
      std::erase_if(pending_, [&](const Pending& call) { return call.rank == arrival.rank; });
      std::lock_guard lock(mu_);
      peers_[static_cast<size_t>(arrival.rank)].gone = true;
      changed_.notify_all();
      return;
    }
  }
}

void ComputeCalls::NoteAnswer(int owner, uint64_t number, int32_t code) {
  std::lock_guard lock(mu_);
  Peer& peer = peers_[static_cast<size_t>(owner)];
  if (number != peer.called) return;
  peer.answered = number;
  peer.code = code;
  changed_.notify_all();
}

// All calls of the layer of the first one, together.
void ComputeCalls::ServeFirst() {
  if (pending_.front().message.kind == Kind::kProbe) {
    // What this rank called before was served before.
    Answer(pending_.front(), kOk);
    pending_.pop_front();
    return;
  }
  const int32_t layer = pending_.front().message.layer;
  Batch batch;
  std::vector<Pending> served, refused;
  std::erase_if(pending_, [&](const Pending& call) {
    if (call.message.kind != Kind::kCall || call.message.layer != layer) return false;
    const bool valid = IsValid(call);
    // The next product takes it.
    if (valid && batch.tokens() + call.message.rows > state_.normed.rows) return false;
    (valid && Gather(call, &batch) ? served : refused).push_back(call);
    return true;
  });
  for (const Pending& call : refused) Answer(call, kRefused);
  if (served.empty()) return;
  const int64_t rows = batch.tokens();
  const Matrix out = FirstRows(state_.projected, rows);
  MultiplyFeedForward(model_, options_.owned[static_cast<size_t>(layer)], batch,
                      FirstRows(state_.normed, rows), out, state_);
  const auto row_bytes = static_cast<size_t>(options_.shape.hidden) * sizeof(float);
  int64_t row = 0;
  for (const Pending& call : served) {
    const int64_t count = call.message.rows;
    std::memcpy(Areas(call.rank).Out(options_.rank, count).data,
                static_cast<const float*>(out.data) + row * out.stride,
                static_cast<size_t>(count) * row_bytes);
    row += count;
  }
  counts_->rows_served[static_cast<size_t>(layer)] += rows;
  ++counts_->products;
  for (const Pending& call : served) Answer(call, kOk);
}

bool ComputeCalls::IsValid(const Pending& call) const {
  const Message& message = call.message;
  const auto layer = static_cast<size_t>(message.layer);
  if (layer >= options_.owned.size() || options_.owned[layer].up.weight.empty()) return false;
  if (message.rows < 1 || message.rows > options_.shape.rows_max) return false;
  return message.spans >= 1 && message.spans <= message.rows;
}

// Appends the rows of a valid call to the batch. False: its spans are not those of its rows. The
// caller may write what is read here at any time, so it is checked as it was copied.
bool ComputeCalls::Gather(const Pending& call, Batch* batch) {
  const Message& message = call.message;
  const CallAreas& areas = Areas(call.rank);
  const std::span<int32_t> told = areas.Spans(options_.rank);
  const std::vector<int32_t> spans(told.begin(), told.begin() + message.spans);
  int64_t sum = 0;
  for (const int32_t count : spans) {
    if (count < 1 || count > message.rows) return false;
    sum += count;
  }
  if (sum != message.rows) return false;
  const int64_t first = batch->tokens();
  int64_t begin = first;
  for (const int32_t count : spans) {
    SequenceSpan span;
    span.token_begin = begin;
    span.token_count = count;
    batch->sequences.push_back(span);
    begin += count;
  }
  batch->ids.resize(static_cast<size_t>(begin));
  const size_t row_bytes =
      static_cast<size_t>(options_.shape.hidden) * BytesOf(options_.shape.activation);
  std::memcpy(static_cast<std::byte*>(state_.normed.data) + static_cast<size_t>(first) * row_bytes,
              areas.In(options_.rank, message.rows).data,
              static_cast<size_t>(message.rows) * row_bytes);
  return true;
}

void ComputeCalls::Answer(const Pending& call, int32_t code) {
  if (call.rank == options_.rank) {
    NoteAnswer(call.rank, call.message.number, code);
    return;
  }
  const Message answer = {.kind = Kind::kAnswer,
                          .layer = call.message.layer,
                          .number = call.message.number,
                          .code = code};
  wire_->Send(call.rank, std::string(reinterpret_cast<const char*>(&answer), sizeof answer));
}

}  // namespace skein::engine
