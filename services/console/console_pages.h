// The open pages of a console: each gets a snapshot of the state, and then what changes, as
// server-sent events. What changes is computed and written out once for all pages.
//
// A page that reads too slowly is sent no more than its connection may buffer
// (http::ServerOptions::buffer_bytes_max): it misses the changes beyond that, and gets a new
// snapshot when it has read what it was sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "nlohmann/json.hpp"
#include "services/http/responder.h"

namespace skein::services {

class ConsolePages {
 public:
  static constexpr size_t kPagesMax = 32;

  // Begins the answer. False: there are too many, and nothing was answered. Any thread.
  bool Open(const std::shared_ptr<http::Responder>& responder);
  // How many are open. Any thread.
  size_t Count();

  // `state` is what there is now; pages get what has changed since the call before, or all of it.
  // Every page gets something, so that it knows that what it shows is from now. On one thread.
  void Publish(nlohmann::json state, int64_t now_ms);

  // Ends all answers. Any thread; later calls of Open say false.
  void Close();

 private:
  struct Page {
    std::shared_ptr<http::Responder> responder;
    std::atomic<bool> full{false};  // it has not read what it was sent
    std::atomic<bool> gone{false};
    bool behind = true;  // it needs a snapshot; on Publish's thread
  };

  std::mutex mutex_;
  std::list<std::shared_ptr<Page>> pages_;           // guarded by mutex_
  bool closed_ = false;                              // guarded by mutex_
  nlohmann::json state_ = nlohmann::json::object();  // on Publish's thread
};

}  // namespace skein::services
