// Finds stop strings in a text that comes in pieces, and holds back what may become one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein::services::openai {

class StopMatcher {
 public:
  // `stops`: not empty strings. `include`: the stop string itself is part of the output.
  explicit StopMatcher(std::vector<std::string> stops = {}, bool include = false);

  // Takes the next piece; returns the text that is certain to be output now. The stop string that
  // begins first wins; of two that begin together, the one listed first.
  std::string Push(std::string_view piece);
  // Takes a piece in which no stop string is looked for; what was held is output before it.
  std::string PushUnchecked(std::string_view piece);
  // The end of the text: what was held back.
  std::string Flush();

  // The stop string that was found; nothing is output after it.
  bool matched() const { return matched_ != nullptr; }
  const std::string& match() const { return *matched_; }

 private:
  size_t HeldFrom() const;

  std::vector<std::string> stops_;
  const bool include_;
  std::string held_;
  const std::string* matched_ = nullptr;  // into stops_
};

}  // namespace skein::services::openai
