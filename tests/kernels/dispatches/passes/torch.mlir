func.func @main(%x: !torch.vtensor<[2,4,32,32],f32>, %y: !torch.vtensor<[2,32,48],f32>, %g: !torch.vtensor<[48],f32>, %b: !torch.vtensor<[48],f32>) -> (!torch.vtensor<[2,4,32,32],f32>, !torch.vtensor<[2,32,48],f32>, !torch.vtensor<[2,32,48],f32>, !torch.vtensor<[2,32,48],f32>) {
  %none = torch.constant.none
  %int-1 = torch.constant.int -1
  %false = torch.constant.bool false
  %0 = torch.aten._softmax %x, %int-1, %false : !torch.vtensor<[2,4,32,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[2,4,32,32],f32>
  %int48 = torch.constant.int 48
  %l = torch.prim.ListConstruct %int48 : (!torch.int) -> !torch.list<int>
  %eps = torch.constant.float 1.0e-05
  %1 = torch.aten.layer_norm %y, %l, %g, %b, %eps, %false : !torch.vtensor<[2,32,48],f32>, !torch.list<int>, !torch.vtensor<[48],f32>, !torch.vtensor<[48],f32>, !torch.float, !torch.bool -> !torch.vtensor<[2,32,48],f32>
  %n = torch.constant.str "none"
  %t = torch.constant.str "tanh"
  %2 = torch.aten.gelu %y, %n : !torch.vtensor<[2,32,48],f32>, !torch.str -> !torch.vtensor<[2,32,48],f32>
  %3 = torch.aten.gelu %y, %t : !torch.vtensor<[2,32,48],f32>, !torch.str -> !torch.vtensor<[2,32,48],f32>
  return %0, %1, %2, %3 : !torch.vtensor<[2,4,32,32],f32>, !torch.vtensor<[2,32,48],f32>, !torch.vtensor<[2,32,48],f32>, !torch.vtensor<[2,32,48],f32>
}
