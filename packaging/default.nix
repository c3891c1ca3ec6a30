# The headers: nix-build packaging. Not run here.
{ pkgs ? import <nixpkgs> { } }:
let
  header = builtins.readFile ../include/tensafe/core/version.hpp;
  numbers = builtins.filter builtins.isList (builtins.split "define TENSAFE_VERSION_[A-Z]+ ([0-9]+)" header);
in
pkgs.stdenv.mkDerivation {
  pname = "tensafe";
  version = builtins.concatStringsSep "." (builtins.concatLists numbers);
  src = builtins.filterSource (path: _: !builtins.elem (baseNameOf path) [ ".git" "build" ]) ../.;
  nativeBuildInputs = [ pkgs.cmake ];
  cmakeFlags = map (part: "-DTENSAFE_BUILD_${part}=OFF") [ "TESTS" "EXAMPLES" "SERVICE" "BENCHMARKS" ];
  meta.license = pkgs.lib.licenses.asl20;
}
