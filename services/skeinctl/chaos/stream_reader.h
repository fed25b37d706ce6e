// Reads one answer with `return_token_ids` as its bytes arrive: a completion or a chat, streamed or
// not, of one choice or several. Pure: the caller passes the time.
#pragma once

#include <string>
#include <string_view>

#include "nlohmann/json_fwd.hpp"
#include "services/skeinctl/bench/sse_parser.h"
#include "services/skeinctl/chaos/stream_record.h"

namespace skein::services::chaos {

class StreamReader {
 public:
  // `record` outlives this; its `streamed` says which form is expected.
  explicit StreamReader(StreamRecord* record);
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  void OnStatus(int status) { status_ = status; }
  void OnBody(std::string_view bytes, double now_s);
  // HTTP has ended the answer. Records an error if a client could not use it: a status other than
  // 200, an error event, a stream without its end.
  void OnEnd(double now_s);

  int status() const { return status_; }

 private:
  void OnEvent(const std::string& data);
  void OnJson(const std::string& text);
  bool OnChoice(const nlohmann::json& choice);  // false: it is malformed
  void Fail(const std::string& kind, const std::string& message);

  StreamRecord* const record_;
  bench::SseParser events_;
  std::string body_;  // of an answer that is no stream, or of an error
  int status_ = 0;    // 0: no answer began
  double now_s_ = 0;
};

}  // namespace skein::services::chaos
