// The batches in which messages travel on a stream (services/rpc/bidi_stream.h): what has arrived
// and waits to be handled, and what waits to be written.
#pragma once

#include <cstddef>
#include <deque>
#include <type_traits>
#include <utility>
#include <vector>

namespace skein::services {

template <typename Batch>
concept HasMessages = requires(const Batch& batch) {
  batch.messages(0);
};

template <typename Batch>
struct MessageTypeOf {
  using Type = Batch;
};
template <HasMessages Batch>
struct MessageTypeOf<Batch> {
  using Type = std::decay_t<decltype(std::declval<const Batch&>().messages(0))>;
};

// The messages that one batch carries.
template <typename Batch>
using MessageOf = typename MessageTypeOf<Batch>::Type;

// Batches that were read and are not handled yet. The stream's lock guards it.
template <typename Batch>
class ReadAhead {
 public:
  // Reading goes on while less than this waits.
  static constexpr size_t kBatchesMax = 64;
  static constexpr size_t kBytesMax = size_t{1} << 20;

  // True: nothing waited before, so the caller has to schedule the handling.
  bool Add(Batch batch) {
    bytes_ += batch.ByteSizeLong();
    batches_.push_back(std::move(batch));
    return batches_.size() == 1;
  }
  bool HasRoom() const { return batches_.size() < kBatchesMax && bytes_ < kBytesMax; }
  std::vector<Batch> TakeAll() {
    bytes_ = 0;
    return std::exchange(batches_, {});
  }

 private:
  std::vector<Batch> batches_;
  size_t bytes_ = 0;
};

// Hands each message over until `closed()`.
template <typename Batch, typename OnMessage, typename Closed>
void HandleBatches(const std::vector<Batch>& batches, const OnMessage& message, Closed closed) {
  for (const Batch& batch : batches) {
    if constexpr (HasMessages<Batch>) {
      if (batch.messages_size() == 0 && !closed()) message(MessageOf<Batch>());
      for (const auto& one : batch.messages()) {
        if (closed()) return;
        message(one);
      }
    } else {
      if (closed()) return;
      message(batch);
    }
  }
}

// Messages that wait to be written, and the batch that is being written. The stream's lock guards
// it.
template <typename Batch>
class WriteQueue {
 public:
  // A batch takes no further message once it has so many bytes.
  static constexpr size_t kBatchBytes = size_t{64} << 10;

  void Add(MessageOf<Batch> message) { queue_.push_back(std::move(message)); }
  bool empty() const { return queue_.empty(); }
  void Clear() { queue_.clear(); }
  // The next batch; valid until the next call. REQUIRES: not empty, and the former was written.
  const Batch* Next() {
    if constexpr (HasMessages<Batch>) {
      batch_.clear_messages();
      for (size_t bytes = 0; !queue_.empty() && bytes < kBatchBytes; queue_.pop_front()) {
        bytes += queue_.front().ByteSizeLong();
        *batch_.add_messages() = std::move(queue_.front());
      }
    } else {
      batch_ = std::move(queue_.front());
      queue_.pop_front();
    }
    return &batch_;
  }

 private:
  std::deque<MessageOf<Batch>> queue_;
  Batch batch_;
};

}  // namespace skein::services
