#pragma once

#include <tensafe/keystore/signed_adapter.hpp>

#include <memory>
#include <stop_token>
#include <string>

namespace split {

/// Where the adapters are that a server loads by their directories, and nowhere else. Thread-safe.
class adapter_source {
  public:
    virtual ~adapter_source() = default;
    /// What can be said at once of a directory that is to be read.
    /// @throws tensafe::parameter_error for one that is not there or elsewhere
    virtual void check(const std::string& directory) const = 0;
    /// Checks it again: what stands there may be another thing by then.
    /// @param must_be  what signs it; null: nothing need
    /// @throws as check and tensafe::io::load_peft, or keystore::load_adapter where it must be signed;
    ///         tensafe::cancelled_error if it is stopped
    virtual tensafe::lora::adapter read(const std::string& directory,
                                        const tensafe::keystore::signature_policy* must_be,
                                        const std::stop_token& stop) const = 0;
};

/// @param root  a folder that is there, s3://BUCKET/PREFIX (s3_adapters), or empty: no directory is good
/// @throws tensafe::parameter_error for any other; unsupported_error for a bucket, if this build has no
///         libcurl
std::shared_ptr<const adapter_source> open_adapter_source(const std::string& root);

/// Whatever folder is named, anywhere.
std::shared_ptr<const adapter_source> any_folder();

}  // namespace split
