// The largest messages that Skein's servers accept. A larger one ends the stream on which it
// comes, with all requests of that stream; so what a client asks for is measured against these.
#pragma once

namespace skein::services {

// Of a message without logprobs: some 4 million tokens.
inline constexpr int kMessageBytesMax = 16 << 20;
// Of a message with a prompt's logprobs: 20 each for some 200,000 tokens.
inline constexpr int kLogprobsMessageBytesMax = 64 << 20;

}  // namespace skein::services
